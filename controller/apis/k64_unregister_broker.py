"""UnregisterBroker: v0

Behaviour: removes the registration of a broker. A running broker registers again after its next heartbeat fails.

Errors: BROKER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_once
from barnabas.protocol.messages.k64_unregister_broker import UnregisterBrokerResponse


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the removal."""
    broker_id = request.message.broker_id
    return decide_once(
        services,
        request,
        "unregisterBroker",
        lambda view: services.controller.unregister(view, broker_id),
        lambda _: UnregisterBrokerResponse(),
    )


API = Api(64, "UnregisterBroker", (0, 0), handle, is_forwarded=True)
