"""RemoveRaftVoter: v0-v0

Behaviour: the leader removes a voter, perhaps itself (KIP-853). One change is made at a time.

Errors: NOT_LEADER_OR_FOLLOWER, INCONSISTENT_CLUSTER_ID, UNSUPPORTED_VERSION (kraft.version 0), INVALID_REQUEST,
VOTER_NOT_FOUND, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, change_voters


def handle(services: ControllerServices, request: Request) -> Answer:
    """Hand the request to this controller's replica."""
    return change_voters(services, request)


API = Api(81, "RemoveRaftVoter", (0, 0), handle, is_forwarded=True)
