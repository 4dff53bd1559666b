"""BrokerHeartbeat: v0-v2

Behaviour: keeps a broker's session alive, and moves it between its states: see broker_registry.py.

Errors: STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later
from barnabas.controller.broker_registry import BrokerState, HeartbeatReply
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatResponse


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the heartbeat judged."""
    message = request.message
    return decide_later(
        services, "processBrokerHeartbeat", lambda view: services.controller.heartbeat(view, message), answer
    )


def answer(reply: HeartbeatReply) -> BrokerHeartbeatResponse:
    """The response for where the broker stands now."""
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.state.is_fenced,
        should_shut_down=reply.state is BrokerState.SHUTDOWN_NOW,
    )


API = Api(63, "BrokerHeartbeat", (0, 2), handle, operation="CLUSTER_ACTION", resource="CLUSTER")
