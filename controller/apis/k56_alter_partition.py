"""AlterPartition: v2-v3

Behaviour: a leader asks to change the ISR of partitions it leads; each is judged on its own, see alter_partition.py.

Version notes: v2 (KIP-841) ineligible replicas; v3 (KIP-903) broker epochs of the members.

Errors: STALE_BROKER_EPOCH (whole request); UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_CONTROLLER,
FENCED_LEADER_EPOCH, INVALID_REQUEST, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA, NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.alter_partition import alter_partition
from barnabas.controller.apis.services import ControllerServices, decide_later, same


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the ISRs changed."""
    message, version = request.message, request.header.api_version
    return decide_later(services, "alterPartition", lambda view: alter_partition(view, message, version), same)


API = Api(56, "AlterPartition", (2, 3), handle, operation="CLUSTER_ACTION", resource="CLUSTER")
