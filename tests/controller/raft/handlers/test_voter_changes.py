"""One change of the voters at a time: the answers to clients. Tests quorum_description.py, too."""

from __future__ import annotations

import pytest

from barnabas.common.ids import ZERO_UUID, uuid_to_string
from barnabas.controller.raft.effects import Send
from barnabas.controller.raft.election_state import ElectionState
from barnabas.controller.raft.handlers.voter_changes import LISTENERS_MAX, NAME_LENGTH_MAX
from barnabas.controller.raft.messages import fetch_request, update_voter_request, vote_request
from barnabas.controller.raft.replica import RaftReplica
from barnabas.controller.raft.voter_set import KRAFT_VERSION_FEATURE
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, Listener
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.k82_update_raft_voter import Listener as UpdateListener
from tests.controller.raft.rig import answers, key, leader_alone, replica, sent
from tests.controller.raft.simulator.node import CLUSTER, listeners_of

NOW = 2_000


def add(node_id: int) -> AddRaftVoterRequest:
    listeners = [Listener(name=name, host=host, port=port) for name, host, port in listeners_of(node_id)]
    return AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=1_000,
        voter_id=node_id,
        voter_directory_id=key(node_id).directory_id,
        listeners=listeners,
    )


def remove(node_id: int) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=key(node_id).directory_id)


def caught_up(leader: RaftReplica, node_id: int, now_ms: int = NOW) -> None:
    """Let an observer fetch at the leader's end."""
    observer = replica(node_id)
    request = fetch_request(observer.quorum)
    partition = request.topics[0].partitions[0]
    partition.fetch_offset = leader.quorum.outline.end_offset
    partition.last_fetched_epoch = partition.current_leader_epoch = leader.quorum.epoch
    leader.handle_request(request, "fetch", now_ms)


def versions_answered(leader: RaftReplica, asked: Send, highest: int, now_ms: int = NOW) -> list[object]:
    feature = SupportedFeatureKey(name=KRAFT_VERSION_FEATURE, min_version=0, max_version=highest)
    answer = ApiVersionsResponse(error_code=0, supported_features=[feature])
    return leader.handle_response(asked.node_id, asked.correlation_id, answer, now_ms)  # type: ignore[return-value]


def test_a_voter_is_added_once_it_has_answered() -> None:
    leader = leader_alone()
    caught_up(leader, 2)
    (asked,) = leader.handle_request(add(2), "client", NOW)
    assert isinstance(asked, Send)
    assert isinstance(asked.request, ApiVersionsRequest)
    assert answers(leader.handle_request(add(3), "other", NOW))[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    versions_answered(leader, asked, 1)
    assert [node.key.id for node in leader.quorum.outline.voters] == [1, 2]
    # It counts at once: alone, the leader cannot commit the change.
    assert leader.quorum.high_watermark < leader.quorum.outline.end_offset
    late = leader.poll(NOW + 1_000)
    assert answers(late)[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_leader_that_was_alone_does_not_resign_when_it_gets_a_second_voter() -> None:
    leader = leader_alone()
    leader.poll(NOW + 59_000)
    now_ms = NOW + 60_000
    caught_up(leader, 2, now_ms)
    (asked,) = leader.handle_request(add(2), "client", now_ms)
    assert isinstance(asked, Send)
    versions_answered(leader, asked, 1, now_ms)
    leader.poll(now_ms + 500)
    assert len(leader.quorum.outline.voters) == 2
    assert leader.is_leader
    leader.poll(now_ms + 60_000)
    assert not leader.is_leader


def test_a_leader_that_is_deposed_answers_its_client() -> None:
    leader = leader_alone()
    caught_up(leader, 2)
    leader.handle_request(add(2), "client", NOW)
    candidate = replica(2)
    request = vote_request(candidate.quorum, key(1), is_pre_vote=False)
    request.topics[0].partitions[0].replica_epoch = leader.quorum.epoch + 1
    found = answers(leader.handle_request(request, "vote", NOW))
    assert [type(answer).__name__ for answer in found] == ["AddRaftVoterResponse", "VoteResponse"]
    assert found[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_voter_that_lags_or_is_too_old_is_refused() -> None:
    leader = leader_alone()
    (asked,) = leader.handle_request(add(2), "client", NOW)
    assert isinstance(asked, Send)
    (answer,) = answers(versions_answered(leader, asked, 1))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    caught_up(leader, 3)
    (asked,) = leader.handle_request(add(3), "client", NOW)
    assert isinstance(asked, Send)
    (answer,) = answers(versions_answered(leader, asked, 0))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_voter_that_cannot_be_reached_keeps_no_other_change_waiting() -> None:
    leader = leader_alone()
    caught_up(leader, 2)
    caught_up(leader, 3)
    (asked,) = leader.handle_request(add(2), "client", NOW)
    assert isinstance(asked, Send)
    (answer,) = answers(leader.handle_response(asked.node_id, asked.correlation_id, None, NOW))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "cannot be reached" in answer.error_message
    assert sent(leader.handle_request(add(3), "other", NOW), ApiVersionsRequest)


def test_what_is_no_change_is_refused() -> None:
    leader = leader_alone()
    assert answers(leader.handle_request(add(1), "c", NOW))[0].error_code == ErrorCode.DUPLICATE_VOTER
    assert answers(leader.handle_request(remove(2), "c", NOW))[0].error_code == ErrorCode.VOTER_NOT_FOUND
    assert answers(leader.handle_request(remove(1), "c", NOW))[0].error_code == ErrorCode.VOTER_NOT_FOUND
    nameless = add(2)
    nameless.listeners = []
    assert answers(leader.handle_request(nameless, "c", NOW))[0].error_code == ErrorCode.INVALID_REQUEST
    foreign = add(2)
    foreign.cluster_id = "other"
    assert answers(leader.handle_request(foreign, "c", NOW))[0].error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    follower = replica(2)
    follower.start(0)
    assert answers(follower.handle_request(add(4), "c", 1))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert sent(follower.poll(2), ApiVersionsRequest) == []


def test_a_refusal_says_why() -> None:
    leader = leader_alone()
    directory = uuid_to_string(key(1).directory_id)
    foreign, nameless, unknown = add(2), add(2), add(2)
    foreign.cluster_id, nameless.listeners, unknown.voter_directory_id = "other", [], ZERO_UUID
    nobody = remove(2)
    nobody.voter_id = -1

    def why(request: AddRaftVoterRequest | RemoveRaftVoterRequest) -> str:
        (answer,) = answers(leader.handle_request(request, "c", NOW))
        return answer.error_message

    assert why(foreign) == f"The request is for another cluster: the id of this one is {CLUSTER}."
    assert why(nameless).startswith("The new voter needs an endpoint of the listener CONTROLLER")
    assert why(unknown) == why(nobody) == "The request needs the id of a controller, and that of its directory."
    assert why(add(1)) == f"Controller 1 is one of the voters already: 1 ({directory})."
    assert why(remove(1)).startswith(f"Controller 1 ({directory}) is none of the voters, or the only one")
    caught_up(leader, 2)
    leader.handle_request(add(2), "client", NOW)
    assert why(add(3)) == why(remove(1)) == "Another change of the voters is under way."
    (late,) = answers(leader.poll(NOW + 1_000))
    assert late.error_message == "The change of the voters took too long: the new voter did not answer."


def test_the_leader_describes_the_quorum() -> None:
    leader = leader_alone()
    caught_up(leader, 2)
    response = leader.describe(NOW + 10, 1_700_000_000_000)
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.high_watermark) == (0, 1, 3)
    (voter,), (observer,) = partition.current_voters, partition.observers
    assert (voter.replica_id, voter.log_end_offset) == (1, 3)
    assert (observer.replica_id, observer.last_caught_up_timestamp) == (2, 1_699_999_999_990)
    assert response.nodes[0].listeners[0].host == "n1"
    follower = replica(2)
    follower.start(0)
    refused = follower.describe(1, 1).topics[0].partitions[0]
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refused.error_message == "This controller does not lead the quorum."
    assert (response.error_message, partition.error_message) == ("", ""), "as Apache Kafka answers"


def test_a_node_that_was_only_asked_for_its_versions_is_forgotten() -> None:
    """Otherwise each node that a request names would stay known."""
    leader = leader_alone()
    for node_id in range(10, 13):
        request = add(node_id)
        request.timeout_ms = 0
        effects = leader.handle_request(request, "client", NOW)
        assert sent(effects, ApiVersionsRequest)
        assert answers(effects)[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert leader.quorum.requests.ready_at(node_id) == 0


@pytest.mark.parametrize(
    "listeners",
    [
        [Listener(name="CONTROLLER", host="n2", port=1), *[Listener(name="A", host="n2", port=1)] * LISTENERS_MAX],
        [Listener(name="CONTROLLER", host="n" * (NAME_LENGTH_MAX + 1), port=1)],
        [Listener(name="CONTROLLER", host="n2", port=1), Listener(name="A" * 40_000, host="n2", port=1)],
    ],
)
def test_a_voter_s_listeners_are_bounded(listeners: list[Listener]) -> None:
    """They go into the log, and into each snapshot."""
    leader = leader_alone()
    end = leader.quorum.outline.end
    caught_up(leader, 2)
    request = add(2)
    request.listeners = listeners
    assert answers(leader.handle_request(request, "c", NOW))[0].error_code == ErrorCode.INVALID_REQUEST
    own = update_voter_request(leader.quorum)
    own.listeners = [UpdateListener(name=each.name, host=each.host, port=each.port) for each in listeners]
    assert answers(leader.handle_request(own, "c", NOW))[0].error_code == ErrorCode.INVALID_REQUEST
    assert leader.quorum.outline.end == end


def test_the_only_voter_leads_at_its_start() -> None:
    found = replica(1, voters=1)
    found.start(0)
    assert found.is_leader
    again = replica(1, voters=1, election=ElectionState(4, 1, None))
    again.start(0)
    assert (again.is_leader, again.quorum.epoch) == (True, 5)
