"""What a request may make a replica keep: listeners, and fetches that wait (common.py, elections.py, fetching.py)."""

from __future__ import annotations

from barnabas.controller.raft.effects import Reply
from barnabas.controller.raft.handlers.fetching import PARKED_MAX
from barnabas.controller.raft.messages import TOPIC, fetch_request
from barnabas.controller.raft.replica import RaftReplica
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k53_begin_quorum_epoch as begin
from barnabas.protocol.messages import k54_end_quorum_epoch as end
from barnabas.protocol.messages.k01_fetch import FetchRequest
from tests.controller.raft.rig import answers, key, leader_alone, replica
from tests.controller.raft.simulator.node import CLUSTER, listeners_of

NOW = 2_000


def test_only_the_listener_of_the_controllers_is_kept_of_a_leader() -> None:
    """A request may name a million listeners, and each turn of a follower looks for the one that it uses."""
    others = [("OTHER", f"h{number}", 1) for number in range(1_000)]
    named = [*others, *listeners_of(2), *others]
    first = begin.BeginQuorumEpochRequest(
        cluster_id=CLUSTER,
        voter_id=1,
        topics=[
            begin.RequestTopicData(
                topic_name=TOPIC,
                partitions=[begin.RequestPartitionData(partition_index=0, leader_id=2, leader_epoch=3)],
            )
        ],
        leader_endpoints=[begin.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in named],
    )
    second = end.EndQuorumEpochRequest(
        cluster_id=CLUSTER,
        topics=[
            end.RequestTopicData(
                topic_name=TOPIC, partitions=[end.RequestPartitionData(partition_index=0, leader_id=2, leader_epoch=3)]
            )
        ],
        leader_endpoints=[end.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in named],
    )
    for request in (first, second):
        follower = replica(1)
        follower.start(0)
        follower.handle_request(request, "token", NOW)
        assert follower.quorum.leader_endpoints == listeners_of(2)


def at_the_end(leader: RaftReplica, replica_id: int) -> FetchRequest:
    request = fetch_request(leader.quorum)
    request.replica_state.replica_id = replica_id
    request.topics[0].partitions[0].replica_directory_id = key(9).directory_id
    return request


def test_so_many_fetches_wait_and_one_more_answers_the_first() -> None:
    """Those of closed connections wait on, and each input of the replica looks at all of them."""
    leader = leader_alone()
    for number in range(PARKED_MAX):
        assert answers(leader.handle_request(at_the_end(leader, -1), number, NOW)) == []
    (effect,) = leader.handle_request(at_the_end(leader, -1), "one more", NOW)
    assert isinstance(effect, Reply)
    assert effect.token == 0
    assert effect.response.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert len(leader.quorum.parked) == PARKED_MAX
