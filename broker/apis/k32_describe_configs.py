"""DescribeConfigs: v1-v4.

Behaviour: for each resource, returns its configs with value, source and type. `include_synonyms` adds every place that
could have set the value, `include_documentation` this project's description of the key. `configuration_keys` null or
empty requests all. Resource names: TOPIC by name; BROKER by this broker's id, or "" for the default of all brokers;
BROKER_LOGGER by this broker's id; GROUP and CLIENT_METRICS by name (without any setting too).

Version notes: v3 adds types and documentation (KIP-569); v4 is flexible.

Errors: UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist; INVALID_TOPIC_EXCEPTION for an illegal name;
INVALID_REQUEST for another broker's id, an empty group or subscription name, resources beyond the first
`DESCRIBED_MAX` configs, and for every resource if one has an unknown type.

Nobody is told `super.users` and `allow.everyone.if.no.acl.found`: as in Kafka, they are keys of the authorizer and not
of the broker, so their values are hidden, and they are listed only where the file sets them.

Different from Apache Kafka: a resource named twice is described once. `read_only` is true for every broker key that
this project cannot change at run time, even if Kafka can. Documentation is our own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.settings.config_describer import ConfigDescriber, ConfigSource, Entry
from barnabas.broker.settings.config_rights import ConfigRights
from barnabas.broker.settings.dynamic_config import ALL_BROKERS, ResourceType
from barnabas.common.topic_names import invalid_reason
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

#: Why a bound: ten bytes request all configs of a broker, and a group need not exist to be described. This many configs
#: have 10,000 topics.
DESCRIBED_MAX: Final = 400_000
#: A resource of another type makes the whole request invalid, which takes no right.
_DESCRIBED: Final = frozenset(
    {
        ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS,
        ResourceType.GROUP,
    }
)  # fmt: skip
RIGHTS: Final = ConfigRights(
    rights.DESCRIBE_TOPIC_CONFIGS, rights.DESCRIBE_CLUSTER_CONFIGS, rights.DESCRIBE_GROUP_CONFIGS
)


def handle(services: Services, request: Request) -> Answer:
    """Describe each requested resource."""
    cache = services.metadata_cache
    return answer(
        request, services.dynamic_config, lambda name: cache.snapshot.partition_count(name) is not None, RIGHTS
    )


def answer(request: Request, source: ConfigSource, has_topic: Callable[[str], bool], needed: ConfigRights) -> Reply:
    """Describe each requested resource, as `source` knows it; also for controllers."""
    message: DescribeConfigsRequest = request.message
    for resource in message.resources:
        if resource.resource_type not in _DESCRIBED:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {resource.resource_type}")
    response = DescribeConfigsResponse()
    described_count = 0
    for (kind, name), resource in {(r.resource_type, r.resource_name): r for r in message.resources}.items():
        result = DescribeConfigsResult(resource_type=kind, resource_name=name)
        try:
            if described_count >= DESCRIBED_MAX:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"More than {DESCRIBED_MAX} configs are requested at once")
            if request.access is not None:
                needed.require(request.access, kind, name)
            wanted = set(resource.configuration_keys or ())
            entries = _entries(source, has_topic, resource)
            described_count += len(entries)
            result.configs = [_config(entry, message) for entry in entries if not wanted or entry.name in wanted]
        except ApiError as error:
            result.error_code = error.code
            result.error_message = error.message or error.code.message
        response.results.append(result)
    return Reply(response)


def _entries(source: ConfigSource, has_topic: Callable[[str], bool], resource: DescribeConfigsResource) -> list[Entry]:
    describer = ConfigDescriber(source)
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.TOPIC:
        reason = invalid_reason(name)
        if reason is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if not has_topic(name):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describer.topic(name)
    if kind == ResourceType.BROKER:
        if name == ALL_BROKERS:
            return describer.all_brokers()
        _check_broker_id(source.broker_id, name, "or empty string, ")
        return describer.broker()
    if kind == ResourceType.BROKER_LOGGER:
        _require(name, "Broker id must not be empty")
        _check_broker_id(source.broker_id, name, "")
        return describer.loggers()
    if kind == ResourceType.GROUP:
        _require(name, "Group name must not be empty")
        return describer.group(name)
    _require(name, "Client metrics subscription name must not be empty")
    return describer.client_metrics(name)


def _require(name: str, message: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def _check_broker_id(own_id: int, name: str, alternative: str) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != own_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {own_id} {alternative}but received {name}",
        )


def _config(entry: Entry, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if message.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if message.include_documentation or not entry.doc else None,
    )


API = Api(32, "DescribeConfigs", (1, 4), handle)
