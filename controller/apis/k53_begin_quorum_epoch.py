"""BeginQuorumEpoch: v0-v1

Behaviour: the leader of an epoch makes itself known to a voter.

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


API = Api(53, "BeginQuorumEpoch", (0, 1), handle, nodes_only=nodes_only)
