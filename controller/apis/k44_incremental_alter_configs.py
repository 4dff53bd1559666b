"""IncrementalAlterConfigs: v0-v1

Behaviour: SET, DELETE, APPEND and SUBTRACT (KIP-339). Each resource changes as a whole or not at all. The levels of
this controller's loggers (BROKER_LOGGER by its id) change at once, and are not stored (KIP-412, KIP-919). Brokers
change those of their own loggers themselves, and never forward them.

Errors: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Final

from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.broker.settings.config_changes import change_loggers
from barnabas.broker.settings.config_rights import ConfigRights
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.controller.apis.config_rights import check_resources
from barnabas.controller.apis.services import ControllerServices, decide_once
from barnabas.controller.decision import check_item_count
from barnabas.controller.decisions.configs import incremental_alter_configs
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k44_incremental_alter_configs as wire

RIGHTS: Final = ConfigRights(rights.ALTER_TOPIC_CONFIGS, rights.ALTER_CLUSTER_CONFIGS, rights.ALTER_GROUP_CONFIGS)


def handle(services: ControllerServices, request: Request) -> Answer:
    """Change loggers, and submit the other changes."""
    message, check = request.message, check_resources(request.access, RIGHTS)
    loggers = [resource for resource in message.resources if resource.resource_type == ResourceType.BROKER_LOGGER]
    check_item_count(len(loggers))
    counts = Counter(resource.resource_name for resource in loggers)
    changed = [_change(services, request, named, is_twice=counts[named.resource_name] > 1) for named in loggers]
    rest = copy.copy(message)
    rest.resources = [named for named in message.resources if named.resource_type != ResourceType.BROKER_LOGGER]
    if loggers and not rest.resources:
        return Reply(wire.IncrementalAlterConfigsResponse(responses=changed))

    def answer(response: wire.IncrementalAlterConfigsResponse) -> wire.IncrementalAlterConfigsResponse:
        response.responses += changed
        return response

    is_forwarded = request.context.is_forwarded
    return decide_once(
        services,
        request,
        "incrementalAlterConfigs",
        lambda view: incremental_alter_configs(view, rest, check, is_forwarded=is_forwarded),
        answer,
    )


def _change(
    services: ControllerServices, request: Request, resource: wire.AlterConfigsResource, *, is_twice: bool
) -> wire.AlterConfigsResourceResponse:
    result = wire.AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        if request.access is not None:
            request.access.require(rights.ALTER_LOGGERS)
        if is_twice:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        change_loggers(int(services.config.node_id), resource, request.message.validate_only)
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message or error.code.message
    return result


API = Api(44, "IncrementalAlterConfigs", (0, 1), handle, is_forwarded=True)
