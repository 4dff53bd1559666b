"""DescribeQuorum: v0-v2

Behaviour: the leader lists the voters and observers of `__cluster_metadata-0`, and how far each has fetched. A single
controller lists itself. Registered brokers are observers (observing_brokers.py).

Version notes: v1 (KIP-836): times of the last fetch. v2 (KIP-853): directory ids and endpoints.

Errors: of the partition: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.common.ids import ZERO_UUID
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.push.observing_brokers import observing_brokers
from barnabas.controller.raft.handlers.quorum_description import describe_leader
from barnabas.controller.raft.leader_state import CHECK_QUORUM_FACTOR
from barnabas.controller.raft.messages import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k55_describe_quorum as wire
from barnabas.protocol.push_tags import set_active_since, set_check_quorum

_FIRST_VERSION_WITH_DIRECTORIES: Final = 2


def handle(services: ControllerServices, request: Request) -> Answer:
    """Describe the one partition."""
    topics = request.message.topics
    if [(topic.topic_name, [found.partition_index for found in topic.partitions]) for topic in topics] != [
        (TOPIC, [0])
    ]:
        return Reply(wire.DescribeQuorumResponse(error_code=0, topics=[_unknown(topic) for topic in topics]))
    response = _alone(services) if services.raft is None else services.raft.describe()
    since_ms = services.controller.active_since_ms  # Why once: the event thread may replace it meanwhile
    if since_ms is not None:
        set_active_since(response, since_ms)
        _add_brokers(services, response.topics[0].partitions[0])
    if request.header.api_version < _FIRST_VERSION_WITH_DIRECTORIES:
        _remove_directories(response)
    if services.raft is not None:
        fetch_timeout_ms = int(services.config.controller_quorum_fetch_timeout_ms)
        set_check_quorum(response, int(fetch_timeout_ms * CHECK_QUORUM_FACTOR))
    return Reply(response)


def _add_brokers(services: ControllerServices, partition: wire.ResponsePartitionData) -> None:
    """Add the registered brokers to the observers, if this controller leads."""
    fetching = {state.replica_id: state for state in (*partition.current_voters, *partition.observers)}
    leader = fetching.get(partition.leader_id)
    if partition.error_code == ErrorCode.NONE:
        # Why not without it: a leader that is being removed is no voter any more.
        end_offset = partition.high_watermark if leader is None else leader.log_end_offset
        now_ms, wall_ms = services.clock.monotonic_ms(), services.clock.wall_ms()
        brokers = observing_brokers(services.controller, fetching, end_offset, now_ms, wall_ms)
        partition.observers = [*partition.observers, *brokers]


def _remove_directories(response: wire.DescribeQuorumResponse) -> None:
    """Remove what older versions do not have, and would refuse to encode."""
    response.nodes = []
    for partition in response.topics[0].partitions:
        for replica in (*partition.current_voters, *partition.observers):
            replica.replica_directory_id = ZERO_UUID


def _alone(services: ControllerServices) -> wire.DescribeQuorumResponse:
    """Return what the leader of a quorum of one would answer."""
    status, now_ms, registration = (
        services.controller.quorum(),
        services.clock.wall_ms(),
        services.controller.registration,
    )
    voter = wire.ReplicaState(
        replica_id=status.key.id,
        log_end_offset=status.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    listeners = [] if registration is None else registration.listeners
    node = wire.Node(
        node_id=status.key.id,
        listeners=[wire.Listener(name=found.name, host=found.host, port=found.port) for found in listeners],
    )
    return describe_leader((status.key.id, status.epoch, status.high_watermark), [voter], [], [node])


def _unknown(topic: wire.RequestTopicData) -> wire.ResponseTopicData:
    return wire.ResponseTopicData(
        topic_name=topic.topic_name,
        partitions=[
            wire.ResponsePartitionData(
                partition_index=found.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=f"The controllers have only partition 0 of {TOPIC}.",
            )
            for found in topic.partitions
        ],
    )


API = Api(55, "DescribeQuorum", (0, 2), handle, is_forwarded=True)
