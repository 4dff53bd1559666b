"""AlterPartition: v2-v3

Behaviour: a leader proposes new ISRs for its partitions. Each is decided separately: see alter_partition.py.

Version notes: v2 (KIP-841) ineligible replicas; v3 (KIP-903) broker epochs of the members.

Errors: STALE_BROKER_EPOCH (whole request); UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER,
FENCED_LEADER_EPOCH, INVALID_REQUEST, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, check_cluster, decide_later, same
from barnabas.controller.decisions.alter_partition import alter_partition


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the proposals."""
    check_cluster(services, request)
    message, version = request.message, request.header.api_version
    return decide_later(services, "alterPartition", lambda view: alter_partition(view, message, version), same)


API = Api(56, "AlterPartition", (2, 3), handle, nodes_only=nodes_only)
