"""AssignReplicasToDirs: v0

Behaviour: a broker reports the log directories of its replicas (KIP-858): see directories.py.

Errors: STALE_BROKER_EPOCH (whole request); UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (the
broker has no replica of the partition).

Different from Apache Kafka: if the only replica with the data was in a directory that was replaced, its directory does
not change.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, check_cluster, decide_later, same
from barnabas.controller.decisions.directories import assign_replicas_to_dirs


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the report."""
    check_cluster(services, request)
    message = request.message
    return decide_later(services, "assignReplicasToDirs", lambda view: assign_replicas_to_dirs(view, message), same)


API = Api(73, "AssignReplicasToDirs", (0, 0), handle, nodes_only=nodes_only)
