"""UnregisterBroker: v0

Behaviour: forgets a broker, running or not; one that runs learns it from its next heartbeat.

Errors: BROKER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later
from barnabas.protocol.messages.k64_unregister_broker import UnregisterBrokerResponse


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the broker forgotten."""
    broker_id = request.message.broker_id
    return decide_later(
        services,
        "unregisterBroker",
        lambda view: services.controller.unregister(view, broker_id),
        lambda _: UnregisterBrokerResponse(),
    )


API = Api(64, "UnregisterBroker", (0, 0), handle, operation="ALTER", resource="CLUSTER")
