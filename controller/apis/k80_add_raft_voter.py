"""AddRaftVoter: v0-v1

Behaviour: the leader makes a caught-up controller a voter (KIP-853). One change is made at a time.

Errors: NOT_LEADER_OR_FOLLOWER, INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION (kraft.version 0), INVALID_REQUEST,
DUPLICATE_VOTER, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, change_voters


def handle(services: ControllerServices, request: Request) -> Answer:
    """Hand the request to this controller's replica."""
    return change_voters(services, request)


API = Api(80, "AddRaftVoter", (0, 1), handle, is_forwarded=True)
