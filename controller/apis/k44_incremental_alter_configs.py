"""IncrementalAlterConfigs: v0-v1

Behaviour: SET, DELETE, APPEND and SUBTRACT, for each resource all or nothing (KIP-339). Levels of a broker's loggers
are the broker's own business and never come here.

Errors: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.configs import incremental_alter_configs


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the configs changed."""
    message = request.message
    return decide_later(
        services, "incrementalAlterConfigs", lambda view: incremental_alter_configs(view, message), same
    )


API = Api(44, "IncrementalAlterConfigs", (0, 1), handle)
