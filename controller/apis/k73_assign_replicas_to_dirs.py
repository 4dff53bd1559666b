"""AssignReplicasToDirs: v0

Behaviour: a broker tells in which of its log directories replicas lie (KIP-858); see directories.py.

Errors: STALE_BROKER_EPOCH (whole request); UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (it has
no replica of the partition).

Different from Apache Kafka: a replica that alone had the data, in a directory that was replaced, is not moved by it.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.directories import assign_replicas_to_dirs


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the directories noted."""
    message = request.message
    return decide_later(services, "assignReplicasToDirs", lambda view: assign_replicas_to_dirs(view, message), same)


API = Api(73, "AssignReplicasToDirs", (0, 0), handle, operation="CLUSTER_ACTION", resource="CLUSTER")
