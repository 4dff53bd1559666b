"""ElectLeaders: v0-v2

Behaviour: v0 holds preferred elections only. From v1 there are unclean ones too (KIP-460), which may lose data.

Errors: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
INVALID_REQUEST, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decisions.leader_requests import elect_leaders


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the elections."""
    message = request.message
    return decide_once(
        services, request, "electLeaders", lambda view: elect_leaders(view, message), same, message.timeout_ms
    )


API = Api(43, "ElectLeaders", (0, 2), handle, is_forwarded=True)
