"""FetchSnapshot: v0-v1

Behaviour: the leader returns a part of a snapshot of the metadata log (KIP-630).

Errors: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST; of the partition: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, ask_quorum


def handle(services: ControllerServices, request: Request) -> Answer:
    """Hand the request to this controller's replica."""
    return ask_quorum(services, request)


API = Api(59, "FetchSnapshot", (0, 1), handle, nodes_only=nodes_only)
