"""BrokerHeartbeat: v0-v2

Behaviour: renews a broker's session and moves the broker between its states: see broker_registry.py.

Errors: STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, check_cluster, decide_later
from barnabas.controller.broker_registry import BrokerState, HeartbeatReply
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatResponse


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the heartbeat."""
    # Why: the broker registers again, and the refusal of that names the cluster.
    check_cluster(services, request, ErrorCode.STALE_BROKER_EPOCH)
    message = request.message
    # Why now: a slow disk, or many events, may hold the event thread up for longer than a session.
    services.controller.heartbeat_arrived(message.broker_id, message.broker_epoch)
    return decide_later(
        services, "processBrokerHeartbeat", lambda view: services.controller.heartbeat(view, message), answer
    )


def answer(reply: HeartbeatReply) -> BrokerHeartbeatResponse:
    """Return the response for the broker's new state."""
    return BrokerHeartbeatResponse(
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.state.is_fenced,
        should_shut_down=reply.state is BrokerState.SHUTDOWN_NOW,
    )


API = Api(63, "BrokerHeartbeat", (0, 2), handle, nodes_only=nodes_only)
