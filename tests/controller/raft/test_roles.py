"""Votes are counted and granted as KIP-595 and KIP-996 say. Tests roles.py and request_manager.py."""

from __future__ import annotations

from barnabas.controller.raft.request_manager import RequestManager
from barnabas.controller.raft.roles import Candidate, Follower, Unattached, Votes, can_grant_pre_vote, can_grant_vote
from barnabas.controller.raft.voter_set import VoterSet
from tests.controller.raft.rig import key
from tests.controller.raft.simulator.node import voter_of

VOTERS = VoterSet(voter_of(key(number)) for number in (1, 2, 3, 4))


def test_votes_are_counted_once() -> None:
    votes = Votes(VOTERS, 1)
    votes.record(2, True)
    votes.record(2, True)
    votes.record(9, True)
    assert not votes.is_granted
    assert [found.id for found in votes.unrecorded] == [3, 4]
    votes.record(3, True)
    assert votes.is_granted


def test_an_election_is_lost_when_no_majority_is_left() -> None:
    votes = Votes(VOTERS, 1)
    votes.record(2, False)
    assert not votes.is_rejected
    votes.record(3, False)
    assert votes.is_rejected


def test_a_vote_is_given_once() -> None:
    role = Unattached(5, 0)
    assert can_grant_vote(role, key(2), is_up_to_date=True)
    assert not can_grant_vote(role, key(2), is_up_to_date=False)
    role.voted = key(2)
    assert can_grant_vote(role, key(2), is_up_to_date=False)
    assert not can_grant_vote(role, key(3), is_up_to_date=True)
    assert not can_grant_vote(role, key(2)._replace(directory_id=b"n" * 16), is_up_to_date=True)
    assert not can_grant_vote(Unattached(5, 0, leader_id=1), key(2), is_up_to_date=True)
    assert not can_grant_vote(Candidate(5, 0, Votes(VOTERS, 1), key(1)), key(2), is_up_to_date=True)


def test_a_follower_that_fetches_refuses_a_pre_vote() -> None:
    role = Follower(5, 0, 1, ())
    assert can_grant_pre_vote(role, is_up_to_date=True)
    assert not can_grant_pre_vote(role, is_up_to_date=False)
    role.has_fetched = True
    assert not can_grant_pre_vote(role, is_up_to_date=True)


def test_one_request_to_a_node_at_a_time() -> None:
    requests = RequestManager(retry_backoff_ms=20, request_timeout_ms=2_000)
    first = requests.sent(1, 100)
    assert requests.ready_at(1) == 2_100
    assert requests.ready_at(2) == 0
    assert not requests.received(1, first + 1, True, 110)
    assert requests.received(1, first, True, 120)
    assert not requests.received(1, first, True, 120)
    requests.failed(1, 120)
    assert requests.ready_at(1) == 140
    requests.sent(1, 150)
    requests.reset()
    assert requests.ready_at(1) == 0
