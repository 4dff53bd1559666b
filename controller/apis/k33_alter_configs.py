"""AlterConfigs: v0-v2 (superseded by IncrementalAlterConfigs)

Behaviour: the given configs replace all dynamic configs of each resource.

Errors: INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.decisions.configs import alter_configs


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message = request.message
    return decide_later(services, "legacyAlterConfigs", lambda view: alter_configs(view, message), same)


API = Api(33, "AlterConfigs", (0, 2), handle)
