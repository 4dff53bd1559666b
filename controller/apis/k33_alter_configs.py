"""AlterConfigs: v0-v2 (superseded by IncrementalAlterConfigs)

Behaviour: the given configs replace all dynamic configs of each resource.

Errors: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.broker.settings.config_rights import ConfigRights
from barnabas.controller.apis.config_rights import check_resources
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decisions.configs import alter_configs

RIGHTS: Final = ConfigRights(rights.REPLACE_TOPIC_CONFIGS, rights.REPLACE_CLUSTER_CONFIGS, rights.REPLACE_GROUP_CONFIGS)


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message, check = request.message, check_resources(request.access, RIGHTS)
    is_forwarded = request.context.is_forwarded
    return decide_once(
        services,
        request,
        "legacyAlterConfigs",
        lambda view: alter_configs(view, message, check, is_forwarded=is_forwarded),
        same,
    )


API = Api(33, "AlterConfigs", (0, 2), handle, is_forwarded=True)
