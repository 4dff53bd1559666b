"""UpdateRaftVoter: v0-v0

Behaviour: the leader takes over the endpoints and the supported versions of a voter (KIP-853).

Errors: NOT_LEADER_OR_FOLLOWER, INCONSISTENT_CLUSTER_ID, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_VERSION
(kraft.version 0), INVALID_REQUEST, VOTER_NOT_FOUND, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, ask_quorum


def handle(services: ControllerServices, request: Request) -> Answer:
    """Hand the request to this controller's replica."""
    return ask_quorum(services, request)


API = Api(82, "UpdateRaftVoter", (0, 0), handle, nodes_only=nodes_only)
