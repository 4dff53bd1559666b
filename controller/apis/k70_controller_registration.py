"""ControllerRegistration: v0

Behaviour: a standby controller registers its listeners and features with the active one. Brokers learn them from the
pushes (tag 10000). The active controller registers itself.

Errors: UNSUPPORTED_VERSION (metadata.version below 3.7-IV0, or a finalized feature), INVALID_REGISTRATION,
NOT_CONTROLLER.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, check_cluster, decide_later
from barnabas.controller.decisions.registration import register_controller
from barnabas.protocol.messages.k70_controller_registration import ControllerRegistrationResponse


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the registration."""
    check_cluster(services, request)
    message = request.message
    return decide_later(
        services,
        "registerController",
        lambda view: register_controller(view, message),
        lambda _: ControllerRegistrationResponse(),
    )


API = Api(70, "ControllerRegistration", (0, 0), handle, nodes_only=nodes_only)
