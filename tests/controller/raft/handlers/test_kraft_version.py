"""kraft.version from 0 to 1, and controllers that join the voters by themselves. Tests voter_changes.py, too."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.controller.raft.batches import control_record
from barnabas.controller.raft.effects import Effect, Send
from barnabas.controller.raft.leader_state import Leader
from barnabas.controller.raft.log_outline import LogOutline, Membership
from barnabas.controller.raft.messages import update_voter_request
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.replica import RaftReplica
from barnabas.controller.raft.voter_set import ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.data.control_records import LeaderChangeMessage
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.k82_update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from tests.controller.raft.rig import answers, key, leader_alone, sent
from tests.controller.raft.simulator.node import CLUSTER, batches, directory, listeners_of, voter_of

SECOND = ReplicaKey(2, directory(22))


def static(voters: int, node_id: int = 1) -> RaftReplica:
    """A replica with static voters 1, 2, … and an empty log."""
    nodes = (VoterNode(ReplicaKey(number), listeners_of(number)) for number in range(1, voters + 1))
    outline = LogOutline(Membership(-1, 0, VoterSet(nodes)))
    return RaftReplica(RaftConfig(CLUSTER, listeners_of(node_id)), key(node_id), outline, None, Random(1), batches)


def leader_of_two() -> RaftReplica:
    """A leader of static voters 1 and 2, which knows its high watermark; the time is 2000."""
    leader = static(2)
    leader.start(0)
    quorum = leader.quorum
    quorum.become_prospective(2_000)
    quorum.become_candidate(2_000)
    quorum.become_leader(2_000)
    assert isinstance(quorum.role, Leader)
    quorum.role.high_watermark = quorum.high_watermark = quorum.outline.end_offset
    leader.poll(2_000)
    return leader


def described(leader: RaftReplica, voter: ReplicaKey, highest: int = 1) -> UpdateRaftVoterResponse:
    """Let a voter name its directory and versions; return the answer."""
    request = UpdateRaftVoterRequest(
        cluster_id=CLUSTER,
        current_leader_epoch=leader.quorum.epoch,
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
    )
    own = update_voter_request(static(2, 2).quorum)
    request.listeners, request.kraft_version_feature = own.listeners, own.kraft_version_feature
    request.kraft_version_feature.max_supported_version = highest
    (answer,) = answers(leader.handle_request(request, "update", 2_000))
    return answer


def upgrade(leader: RaftReplica, *, validate_only: bool = False) -> list[Effect]:
    return leader.upgrade_kraft_version(1, 2_000, validate_only=validate_only)


def test_the_voters_get_their_directories_with_the_upgrade() -> None:
    leader = leader_of_two()
    assert described(leader, SECOND).error_code == ErrorCode.NONE
    before = leader.quorum.outline.end
    assert not upgrade(leader, validate_only=True)
    assert leader.quorum.outline.end == before
    upgrade(leader)
    membership = leader.quorum.outline.membership
    assert (membership.kraft_version, [node.key for node in membership.voters]) == (1, [key(1), SECOND])
    end = leader.quorum.outline.end
    upgrade(leader)
    assert leader.quorum.outline.end == end, "it is done once"
    role = leader.quorum.role
    assert isinstance(role, Leader)
    assert not role.observers
    assert not role.advance_high_watermark(), "the second voter has not fetched with its directory yet"


def test_a_new_disk_of_a_static_voter_replaces_what_is_known_of_it() -> None:
    leader = leader_of_two()
    described(leader, ReplicaKey(2, directory(21)))
    described(leader, SECOND)
    upgrade(leader)
    assert leader.quorum.outline.voters.is_voter(SECOND)
    assert described(leader, ReplicaKey(2, directory(21))).error_code in (
        ErrorCode.REQUEST_TIMED_OUT,  # the upgrade is not committed
        ErrorCode.VOTER_NOT_FOUND,
    )


def test_a_stranger_is_not_described() -> None:
    assert described(leader_of_two(), key(3)).error_code == ErrorCode.VOTER_NOT_FOUND


@pytest.mark.parametrize("version", [0, 1])
def test_nobody_else_describes_the_leader(version: int) -> None:
    """A process with the leader's id, by a copied configuration, would take its vote with the upgrade."""
    leader = leader_of_two()
    described(leader, SECOND)
    if version:
        upgrade(leader)
    end = leader.quorum.outline.end
    for of_leader in (ReplicaKey(1, directory(11)), key(1)):
        assert described(leader, of_leader).error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TIMED_OUT)
    assert leader.quorum.outline.end == end
    upgrade(leader)
    assert leader.quorum.outline.voters.is_voter(key(1))


@pytest.mark.parametrize("highest", [None, 0])
def test_all_voters_must_support_it(highest: int | None) -> None:
    leader = leader_of_two()
    if highest is not None:
        described(leader, SECOND, highest)
    with pytest.raises(ApiError, match=r"because not all of the voters support it, or have said so: \[2\]") as error:
        upgrade(leader)
    assert error.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_no_other_version_and_no_other_controller() -> None:
    leader = leader_of_two()
    with pytest.raises(ApiError, match="from version 0 to version 2"):
        leader.upgrade_kraft_version(2, 2_000, validate_only=False)
    follower = static(2, 2)
    follower.start(0)
    with pytest.raises(ApiError) as error:
        upgrade(follower)
    assert error.value.code is ErrorCode.NOT_CONTROLLER


def test_a_static_voter_names_its_directory_to_each_leader_once() -> None:
    follower = static(2, 2)
    follower.start(0)
    follower.quorum.become_follower(1, 1, listeners_of(1), 0)
    role = follower.quorum.role
    follower.quorum.requests.reset()
    asked = follower.poll(2_000 - 1)
    assert not sent(asked, UpdateRaftVoterRequest), "it fetches some times before"
    role.deadline_ms = 10_000  # type: ignore[union-attr]
    follower.quorum.requests.reset()
    effects = follower.poll(2_000)
    (request,) = sent(effects, UpdateRaftVoterRequest)
    assert request.voter_directory_id == key(2).directory_id
    (effect,) = [found for found in effects if isinstance(found, Send)]
    response = UpdateRaftVoterResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    response.current_leader.leader_id, response.current_leader.leader_epoch = 1, 1
    follower.handle_response(1, effect.correlation_id, response, 2_001)
    follower.quorum.requests.reset()
    assert not sent(follower.poll(4_500), UpdateRaftVoterRequest)


def observer(former: ReplicaKey | None = None, *, joins: bool = True) -> RaftReplica:
    """An observer 3 that follows leader 1."""
    nodes = [voter_of(key(1)), voter_of(key(2)), *([] if former is None else [voter_of(former)])]
    outline = LogOutline(Membership(4, 1, VoterSet(nodes)))
    config = RaftConfig(CLUSTER, listeners_of(3), joins=joins)
    found = RaftReplica(config, key(3), outline, None, Random(1), batches)
    found.start(0)
    found.quorum.become_follower(1, 1, listeners_of(1), 0)
    found.quorum.role.deadline_ms = 60_000  # type: ignore[union-attr]
    found.quorum.requests.reset()
    return found


def test_an_observer_joins_the_voters_if_it_may() -> None:
    effects = observer().poll(2_000)
    (request,) = sent(effects, AddRaftVoterRequest)
    assert (request.voter_id, request.voter_directory_id) == (3, key(3).directory_id)
    assert not request.ack_when_committed
    assert not sent(observer(joins=False).poll(2_000), AddRaftVoterRequest)


def test_a_directory_that_is_lost_is_removed_first() -> None:
    former = ReplicaKey(3, directory(33))
    (request,) = sent(observer(former).poll(2_000), RemoveRaftVoterRequest)
    assert (request.voter_id, request.voter_directory_id) == former


def test_a_refused_request_to_join_is_noted_and_sent_again() -> None:
    replica = observer()
    (effect,) = [found for found in replica.poll(2_000) if isinstance(found, Send)]
    refusal = AddRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="The new voter is behind.")
    effects = replica.handle_response(1, effect.correlation_id, refusal, 2_100)
    assert "does not join the voters yet: REQUEST_TIMED_OUT The new voter is behind." in str(effects)
    replica.quorum.requests.reset()
    assert not sent(replica.poll(4_099), AddRaftVoterRequest), "the leader has time for the changes of others"
    replica.quorum.requests.reset()
    assert sent(replica.poll(4_100), AddRaftVoterRequest)


def test_the_first_record_of_an_epoch_is_of_the_version_that_apache_kafka_reads() -> None:
    """It reads each LeaderChangeMessage as version 0."""
    leader = leader_alone()
    assert leader.quorum.outline.membership.kraft_version == 1
    (change, *_) = leader.quorum._first_records({1})
    assert isinstance(change, LeaderChangeMessage)
    assert LeaderChangeMessage.decode(control_record(change, 0).value or b"", 0) == change
    assert [voter.voter_id for voter in change.voters] == [voter.voter_id for voter in change.granting_voters] == [1]
