"""IncrementalAlterConfigs: v0-v1

Behaviour: SET, DELETE, APPEND and SUBTRACT (KIP-339). Each resource changes as a whole or not at all. Brokers handle
the levels of their loggers themselves, and never forward them.

Errors: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.config_rights import ConfigRights, check_resources
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.decisions.configs import incremental_alter_configs

RIGHTS: Final = ConfigRights(rights.ALTER_TOPIC_CONFIGS, rights.ALTER_CLUSTER_CONFIGS, rights.ALTER_GROUP_CONFIGS)


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message, check = request.message, check_resources(request.access, RIGHTS)
    return decide_later(
        services, "incrementalAlterConfigs", lambda view: incremental_alter_configs(view, message, check), same
    )


API = Api(44, "IncrementalAlterConfigs", (0, 1), handle, is_forwarded=True)
