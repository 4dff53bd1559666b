"""ListConfigResources: v0-v1.

Behaviour: names the resources that have, or may have, configs. v0 (formerly ListClientMetricsResources) lists client
metrics subscriptions. v1 lists the requested types, or all: topics, registered brokers, loggers (by broker), groups
with settings, subscriptions.

Version notes: v1 adds the types (KIP-1142).

Errors: UNSUPPORTED_VERSION for an unknown type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

_ALL = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(services: Services, request: Request) -> Answer:
    """List the resources of the requested types."""
    if request.header.api_version == 0:
        wanted = [int(ResourceType.CLIENT_METRICS)]
    else:
        wanted = list(dict.fromkeys(request.message.resource_types)) or [int(type_) for type_ in _ALL]
    response = ListConfigResourcesResponse()
    if any(type_ not in _ALL for type_ in wanted):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
        return Reply(response)
    response.config_resources = [
        ConfigResource(resource_name=name, resource_type=type_)
        for type_ in wanted
        for name in _names(services, request, type_)
    ]
    return Reply(response)


def _names(services: Services, request: Request, type_: int) -> list[str]:
    snapshot = services.metadata_cache.snapshot
    if type_ == ResourceType.TOPIC:
        return sorted(snapshot.topics)
    if type_ in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        nodes = snapshot.nodes(request.listener_name) + snapshot.fenced_nodes(request.listener_name)
        return [str(node.id) for node in sorted(nodes)]
    return services.dynamic_config.names(type_)


API = Api(74, "ListConfigResources", (0, 1), handle)
