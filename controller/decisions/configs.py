"""Configs of topics, brokers, groups and client metrics: AlterConfigs, IncrementalAlterConfigs, and new topics.

Rules
1. A resource changes as a whole or not at all. Its new configs are validated together.
2. A broker's entries are written even if their values do not change. The broker then reads files (passwords, stores)
   again (KAFKA-14136).
3. An entry whose value is null is a removal.
4. The event thread does the work, so its cost is at most n log n in the size of a request.
5. With eligible leader replicas (KIP-966), controller and leaders must agree about `min.insync.replicas`. So every
   broker has the value of the cluster: that cannot be removed, and a single broker cannot have another. A change clears
   the ELRs, since they hold for the former value. A partition without a leader then waits for the last one.
6. A controller that is asked directly only takes back cordoned log directories (KIP-1066). `is_forwarded`: a broker has
   checked the request.

Threads: none; pure.

Source: ConfigurationControlManager, ControllerConfigurationValidator, ConfigResourceExistenceChecker (Kafka 4.3);
KIP-339.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from barnabas.config import lists
from barnabas.config.errors import ConfigError
from barnabas.config.resources.client_metrics import (
    CLIENT_METRICS_KEYS,
    INTERVAL,
    INTERVAL_MAX_MS,
    INTERVAL_MIN_MS,
    MATCH,
    ClientMetricsConfig,
    parse_match,
)
from barnabas.config.table.keys import BROKER_KEYS, TOPIC_KEYS, Key, Type
from barnabas.controller.apis.node_configs import NodeConfigs
from barnabas.controller.decision import (
    MIN_INSYNC_REPLICAS,
    Decision,
    Failure,
    View,
    check_batch_size,
    check_item_count,
    first_duplicates,
)
from barnabas.controller.decisions.topic_names import check_name
from barnabas.controller.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    ConfigKey,
    Image,
)
from barnabas.controller.policies.policies import ConfigChange
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k33_alter_configs as legacy_wire
from barnabas.protocol.messages import k44_incremental_alter_configs as wire
from barnabas.protocol.metadata_records import ClearElrRecord, ConfigRecord, MetadataRecord, PartitionChangeRecord
from barnabas.protocol.primitives import MAX_STRING_BYTES

if TYPE_CHECKING:
    from barnabas.config import Config

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
_OPERATION_NAMES: Final = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

# Sources of a config value, as CreateTopics and DescribeConfigs name them.
DYNAMIC_TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5

CORDONED: Final = "cordoned.log.dirs"

_KNOWN_TYPES: Final = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
#: The bound of one request. Why more than the bound of records: AlterConfigs also names unchanged entries.
ENTRIES_MAX: Final = 100_000
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")

N = TypeVar("N", legacy_wire.AlterConfigsResource, wire.AlterConfigsResource)


class EffectiveConfig(NamedTuple):
    """One config of a topic as CreateTopics v5+ reports it."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool


# -- new topics


def new_topic_records(view: View, name: str, entries: Sequence[tuple[str, str | None]]) -> list[ConfigRecord]:
    """Return the records for the configs of a new topic; raises INVALID_CONFIG."""
    nulls = [key for key, value in entries if value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    configs = {key: value for key, value in entries if value is not None}
    _check_topic_configs(view, configs)
    if configs:
        view.policies.check_change(ConfigChange(TOPIC_RESOURCE, name, configs))
    return [_record(ConfigKey(TOPIC_RESOURCE, name), key, value) for key, value in configs.items()]


class EffectiveConfigs:
    """Every config of a topic, by name. The defaults are computed once for a whole request."""

    def __init__(self, view: View) -> None:
        node = NodeConfigs(view.config, view.image)
        config = node.config
        places = (
            (_in_force(node.broker_overrides(), config), DYNAMIC_BROKER_CONFIG),
            (_in_force(node.cluster_overrides(), config), DYNAMIC_DEFAULT_BROKER_CONFIG),
            (node.static(), STATIC_BROKER_CONFIG),
        )
        self._defaults = [
            _default(key, places, config.topic_defaults[name]) for name, key in sorted(TOPIC_KEYS.items())
        ]

    def of(self, overrides: Mapping[str, str]) -> list[EffectiveConfig]:
        """Return the configs of a topic with these overrides."""
        return [
            one._replace(value=overrides[one.name], source=DYNAMIC_TOPIC_CONFIG) if one.name in overrides else one
            for one in self._defaults
            if one.name in overrides or not TOPIC_KEYS[one.name].internal
        ]


def _in_force(texts: Mapping[str, str], config: Config) -> set[str]:
    """Return the names of the dynamic configs that a node uses: not of those whose values are unusable."""
    return {name for name, text in texts.items() if config.originals.get(name) == text}


def _default(key: Key, places: Sequence[tuple[Collection[str], int]], default: Any) -> EffectiveConfig:
    """Describe a key that the topic does not set; `places` have the names of broker configs, the strongest first."""
    source = next(
        (source for names, source in places if any(name in names for name, _ in key.synonyms)), DEFAULT_CONFIG
    )
    return EffectiveConfig(key.name, key.to_text(default), source, False, key.sensitive)


# -- AlterConfigs


#: Raises ApiError if the client may not alter this resource.
Check: TypeAlias = "Callable[[ConfigKey], None]"


def anything(_resource: ConfigKey) -> None:
    """Do nothing: the `Check` without an authorizer."""


def incremental_alter_configs(
    view: View, request: wire.IncrementalAlterConfigsRequest, check: Check = anything, *, is_forwarded: bool = True
) -> Decision[wire.IncrementalAlterConfigsResponse]:
    """Apply SET, DELETE, APPEND and SUBTRACT to each resource (rule 1)."""

    def changed(resource: ConfigKey, named: wire.AlterConfigsResource) -> list[ConfigRecord]:
        operations = [(c.name, c.config_operation, c.value) for c in named.configs]
        return _incremental_records(view, resource, operations, is_forwarded=is_forwarded)

    records, failures = _alter(view, request.resources, changed, check)
    responses = [
        wire.AlterConfigsResourceResponse(
            error_code=failure.code,
            error_message=failure.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, failure in failures.items()
    ]
    response = wire.IncrementalAlterConfigsResponse(responses=responses)
    return Decision([] if request.validate_only else records, response)


def alter_configs(
    view: View, request: legacy_wire.AlterConfigsRequest, check: Check = anything, *, is_forwarded: bool = True
) -> Decision[legacy_wire.AlterConfigsResponse]:
    """Replace all configs of each resource (rule 1)."""

    def changed(resource: ConfigKey, named: legacy_wire.AlterConfigsResource) -> list[ConfigRecord]:
        return _replacing_records(view, resource, {c.name: c.value for c in named.configs}, is_forwarded=is_forwarded)

    records, failures = _alter(view, request.resources, changed, check)
    responses = [
        legacy_wire.AlterConfigsResourceResponse(
            error_code=failure.code,
            error_message=failure.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, failure in failures.items()
    ]
    response = legacy_wire.AlterConfigsResponse(responses=responses)
    return Decision([] if request.validate_only else records, response)


def _alter(
    view: View, resources: Sequence[N], changed: Callable[[ConfigKey, N], list[ConfigRecord]], check: Check
) -> tuple[list[MetadataRecord], dict[ConfigKey, Failure]]:
    """Return the records of a request, and the outcome of each resource.

    `changed(resource, item of the request)` returns the records of one resource, or raises ApiError.
    """
    check_item_count(len(resources))
    check_item_count(sum(len(named.configs) for named in resources), ENTRIES_MAX)
    records: list[ConfigRecord] = []
    failures: dict[ConfigKey, Failure] = {}
    for resource, named, failure in _resources(resources):
        if failure is None:
            try:
                check(resource)
                records += changed(resource, named)
                failure = Failure(ErrorCode.NONE)
            except ApiError as error:
                failure = Failure.of(error)
        check_batch_size(records)
        failures[resource] = failure
    return [*records, *_elr_records(view.image, records)], failures


def _elr_records(image: Image, changes: Iterable[ConfigRecord]) -> list[MetadataRecord]:
    """Return the records that clear the ELRs of topics whose `min.insync.replicas` changes (rule 5)."""
    changed = {(r.resource_type, r.resource_name) for r in changes if r.name == MIN_INSYNC_REPLICAS}
    topics = {name for type_, name in changed if type_ == TOPIC_RESOURCE}
    is_of_all = any(type_ == BROKER_RESOURCE for type_, _ in changed)
    if not changed or not (image.has_elr or any(p.elr or p.last_known_elr for _, _, p in image.each_partition())):
        return []
    clears = [""] if is_of_all else sorted(topics)
    kept: list[MetadataRecord] = [
        PartitionChangeRecord(
            partition_id=index,
            topic_id=topic.id,
            last_known_elr=list(p.last_known_elr),
        )
        for topic, index, p in image.each_partition()
        if (is_of_all or topic.name in topics) and p.leader == NO_LEADER and p.last_known_elr
    ]
    return [*(ClearElrRecord(topic_name=name) for name in clears), *kept]


def elr_safety_records(view: View) -> list[ConfigRecord]:
    """Return the changes of configs with which eligible leader replicas can be enabled (rule 5)."""
    records = []
    if MIN_INSYNC_REPLICAS not in view.image.resource_configs(BROKER_RESOURCE, ""):
        value = str(view.config.topic_defaults[MIN_INSYNC_REPLICAS])
        records.append(_record(ConfigKey(BROKER_RESOURCE, ""), MIN_INSYNC_REPLICAS, value))
    for resource, configs in view.image.configs.items():
        if resource.type == BROKER_RESOURCE and resource.name and MIN_INSYNC_REPLICAS in configs:
            records.append(_record(resource, MIN_INSYNC_REPLICAS, None))
    return records


def _resources(resources: Iterable[N]) -> list[tuple[ConfigKey, N, Failure | None]]:
    """Return each resource once, with the failure of a duplicate or unknown resource."""
    seen: dict[ConfigKey, tuple[N, Failure | None]] = {}
    for named in resources:
        key = ConfigKey(named.resource_type, named.resource_name)
        failure = None
        if key in seen:
            failure = Failure(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
        elif key.type not in _KNOWN_TYPES:
            failure = Failure(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {key.type}.")
        seen[key] = (named, failure)
    return [(key, named, failure) for key, (named, failure) in seen.items()]


def _incremental_records(
    view: View, resource: ConfigKey, operations: Sequence[tuple[str, int, str | None]], *, is_forwarded: bool
) -> list[ConfigRecord]:
    _check_operations(operations)
    current = view.image.configs.get(resource, {})
    changes: dict[str, str | None] = {}
    for name, operation, value in operations:
        changes[name] = _next_value(resource, name, operation, value, current.get(name))
    return _changed_records(view, resource, current, changes, is_forwarded=is_forwarded)


def _check_operations(operations: Sequence[tuple[str, int, str | None]]) -> None:
    names = [name for name, _, _ in operations]
    repeated = sorted(first_duplicates(names)[1])
    if repeated:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {','.join(repeated)}")
    unknown = [name for name, operation, _ in operations if operation not in _OPERATION_NAMES]
    if unknown:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation for config keys : {','.join(unknown)}")
    nulls = [name for name, operation, value in operations if operation != DELETE and value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")


def _next_value(resource: ConfigKey, name: str, operation: int, value: str | None, current: str | None) -> str | None:
    if operation == DELETE or value is None:
        return None
    if operation == SET:
        return value
    key = _list_key(resource, name)
    if key is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {_OPERATION_NAMES[operation]} to key {name} because its type is not LIST.",
        )
    start = (key.to_text(key.default) if current is None else current) or ""
    return lists.appended(start, value) if operation == APPEND else lists.subtracted(start, value)


def _list_key(resource: ConfigKey, name: str) -> Key | None:
    """Return the row of a topic's or broker's key whose value is a list; None for other keys.

    Lists of groups and of client metrics only change as a whole: Kafka's KafkaConfigSchema does not have them.
    """
    tables = {TOPIC_RESOURCE: TOPIC_KEYS, BROKER_RESOURCE: BROKER_KEYS}
    key = tables.get(resource.type, {}).get(name)
    return key if key is not None and key.type is Type.LIST else None


def _replacing_records(
    view: View, resource: ConfigKey, wanted: Mapping[str, str | None], *, is_forwarded: bool
) -> list[ConfigRecord]:
    nulls = [name for name, value in wanted.items() if value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    current = view.image.configs.get(resource, {})
    changes = dict(wanted)
    unnamed = {name: None for name in current if name not in wanted}
    changes.update(unnamed)
    return _changed_records(view, resource, current, changes, unnamed, is_forwarded=is_forwarded)


def _changed_records(
    view: View,
    resource: ConfigKey,
    current: Mapping[str, str],
    changes: Mapping[str, str | None],
    unnamed: Collection[str] = (),
    *,
    is_forwarded: bool,
) -> list[ConfigRecord]:
    """Return the records of valid changes; raises ApiError. `unnamed` are those that the request does not name."""
    if resource.type == BROKER_RESOURCE and view.image.has_elr and MIN_INSYNC_REPLICAS in changes:
        _check_min_isr(resource.name, changes[MIN_INSYNC_REPLICAS])
    if resource.type == BROKER_RESOURCE and CORDONED in changes:
        _check_cordoned(view.image, current.get(CORDONED), changes[CORDONED], is_forwarded=is_forwarded)
    after = {**current, **{name: value for name, value in changes.items() if value is not None}}
    for name, value in changes.items():
        if value is None:
            after.pop(name, None)
        elif len(value.encode()) > MAX_STRING_BYTES:  # Why: APPEND can exceed what a client could send
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_STRING_BYTES} bytes.",
            )
    _check_resource(view, resource, after)
    always = resource.type == BROKER_RESOURCE  # rule 2
    changed = {name: value for name, value in changes.items() if always or current.get(name) != value}
    named = {name: value for name, value in changed.items() if name not in unnamed}
    if named:
        view.policies.check_change(ConfigChange(resource.type, resource.name, named))
    return [_record(resource, name, value) for name, value in changed.items()]


def _record(resource: ConfigKey, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)


# -- validation


def _check_resource(view: View, resource: ConfigKey, configs: Mapping[str, str]) -> None:
    """Raise ApiError unless the resource exists and may have these configs."""
    if resource.type == TOPIC_RESOURCE:
        if not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(resource.name)
        _check_topic_configs(view, configs)
        if resource.name not in view.image.topic_ids:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    elif resource.type == BROKER_RESOURCE:
        _check_broker_name(view, resource.name)
    elif resource.type == GROUP_RESOURCE:
        if not resource.name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        _check_group_configs(view, configs)
    else:
        _check_client_metrics(resource.name, configs)


def _check_topic_configs(view: View, configs: Mapping[str, str]) -> None:
    try:
        view.config.validate_topic(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_group_configs(view: View, configs: Mapping[str, str]) -> None:
    try:
        view.config.validate_group(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_broker_name(view: View, name: str) -> None:
    if not name:
        return
    if _INTEGER.fullmatch(name) is None or not -(1 << 31) <= int(name) < 1 << 31:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    broker_id = int(name)
    if broker_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    if broker_id not in view.image.brokers and broker_id != int(view.config.node_id):
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {broker_id} found.")


def _check_min_isr(broker_name: str, value: str | None) -> None:
    """Raise INVALID_CONFIG for a change that rule 5 forbids."""
    if broker_name:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        )
    if value is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        )


def _check_cordoned(image: Image, current: str | None, value: str | None, *, is_forwarded: bool) -> None:
    """Raise INVALID_CONFIG for cordoned log directories that the log cannot have, or that no broker has checked.

    A controller does not know the paths of a broker's directories, so without the broker it only takes some back.
    """
    if not image.can_cordon:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0",
        )
    if is_forwarded or not (value or "").strip():
        return
    if not _directories(value) <= _directories(current):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"When updating {CORDONED} via controllers,  the new value must be a subset of the current configuration "
            "value.",
        )


def _directories(text: str | None) -> set[str]:
    return {part.strip() for part in (text or "").split(",")}


def _check_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in configs:
        if key not in CLIENT_METRICS_KEYS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    try:
        found = ClientMetricsConfig(configs).values
        interval_ms = found[INTERVAL]
        if not INTERVAL_MIN_MS <= interval_ms <= INTERVAL_MAX_MS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {interval_ms} for {INTERVAL}, interval must be between 100 and 3600000 (1 hour)",
            )
        parse_match(found[MATCH])
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
