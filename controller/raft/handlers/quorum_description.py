"""DescribeQuorum: the leader lists its replicas and how far each has fetched.

Source: KafkaRaftClient.handleDescribeQuorumRequest (Kafka 4.3); KIP-836, KIP-853.
"""

from __future__ import annotations

from barnabas.controller.raft.leader_state import Leader, ReplicaState
from barnabas.controller.raft.messages import TOPIC
from barnabas.controller.raft.quorum import Quorum
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k55_describe_quorum as message


def describe_quorum(q: Quorum, now_ms: int, wall_ms: int) -> message.DescribeQuorumResponse:
    """Return the response; times are converted from the replica's clock to the wall clock."""
    leader = q.role
    if not isinstance(leader, Leader):
        partition = message.ResponsePartitionData(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message="This controller does not lead the quorum.",
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
        )
        return _response(partition, [])

    def wall(time_ms: int) -> int:
        return -1 if time_ms < 0 else wall_ms - (now_ms - time_ms)

    def described(state: ReplicaState) -> message.ReplicaState:
        is_local = state.key.matches(q.key)  # static voters have no directory id
        return message.ReplicaState(
            replica_id=state.key.id,
            replica_directory_id=state.key.directory_id,
            log_end_offset=state.end_offset,
            last_fetch_timestamp=wall_ms if is_local else wall(state.last_fetch_ms),
            last_caught_up_timestamp=wall_ms if is_local else wall(state.last_caught_up_ms),
        )

    leader.forget_inactive_observers(now_ms, q.key)
    nodes = [
        message.Node(
            node_id=node.key.id,
            listeners=[message.Listener(name=name, host=host, port=port) for name, host, port in node.listeners],
        )
        for node in q.outline.voters
    ]
    return describe_leader(
        (q.key.id, leader.epoch, leader.high_watermark),
        [described(state) for state in leader.voters.values()],
        [described(state) for state in leader.observers.values()],
        nodes,
    )


def describe_leader(
    leader: tuple[int, int, int],
    voters: list[message.ReplicaState],
    observers: list[message.ReplicaState],
    nodes: list[message.Node],
) -> message.DescribeQuorumResponse:
    """Return the response of a leader: its id, its epoch and its high watermark, and the replicas."""
    leader_id, epoch, high_watermark = leader
    partition = message.ResponsePartitionData(
        partition_index=0,
        error_code=0,
        leader_id=leader_id,
        leader_epoch=epoch,
        high_watermark=high_watermark,
        current_voters=voters,
        observers=observers,
    )
    return _response(partition, nodes)


def _response(partition: message.ResponsePartitionData, nodes: list[message.Node]) -> message.DescribeQuorumResponse:
    topic = message.ResponseTopicData(topic_name=TOPIC, partitions=[partition])
    return message.DescribeQuorumResponse(error_code=0, topics=[topic], nodes=nodes)
