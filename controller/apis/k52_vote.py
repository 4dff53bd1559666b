"""Vote: v0-v2

Behaviour: a controller asks for this one's vote in an epoch, or whether it would vote so (KIP-996); see
controller/raft/.

Errors: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST; of the partition: FENCED_LEADER_EPOCH, INVALID_VOTER_KEY.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, ask_quorum


def handle(services: ControllerServices, request: Request) -> Answer:
    """Hand the request to this controller's replica."""
    return ask_quorum(services, request)


API = Api(52, "Vote", (0, 2), handle, nodes_only=nodes_only)
