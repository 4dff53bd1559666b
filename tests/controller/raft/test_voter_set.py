"""The voters of the quorum."""

from __future__ import annotations

from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.data.control_records import VotersRecord


def key(number: int, directory: int = 1) -> ReplicaKey:
    return ReplicaKey(number, bytes([directory]) * 16)


def voter(number: int, directory: int = 1) -> VoterNode:
    return VoterNode(key(number, directory), (Listener("CONTROLLER", f"host{number}", 9093),), (0, 1))


THREE = VoterSet([voter(1), voter(2), voter(3)])


def test_a_voter_is_its_directory_too() -> None:
    assert THREE.is_voter(key(1))
    assert not THREE.is_voter(key(1, 2))
    assert not THREE.is_voter(key(4))


def test_a_voter_without_a_directory_matches_every_directory() -> None:
    static = VoterSet([VoterNode(ReplicaKey(1))])
    assert static.is_voter(key(1, 7))
    assert not key(1).matches(ReplicaKey(1))


def test_changes() -> None:
    four = THREE.add(voter(4))
    assert four is not None
    assert (len(four), four.majority, THREE.majority) == (4, 3, 2)
    assert THREE.add(voter(1, 2)) is None
    assert four.remove(key(4)) == THREE
    assert THREE.remove(key(1, 2)) is None
    assert VoterSet([voter(1)]).remove(key(1)) is None
    moved = VoterNode(key(1), (Listener("CONTROLLER", "elsewhere", 1),))
    updated = THREE.update(moved)
    assert updated is not None
    assert updated.get(1) == moved
    assert THREE.update(voter(1, 2)) is None


def test_one_change_at_a_time_keeps_majorities_overlapping() -> None:
    assert THREE.has_overlapping_majority(VoterSet([voter(1), voter(2), voter(3, 2)]))
    assert not THREE.has_overlapping_majority(VoterSet([voter(1)]))
    assert not THREE.has_overlapping_majority(VoterSet([*THREE, voter(4), voter(5)]))


def test_a_record_holds_all_of_it() -> None:
    record = VotersRecord.decode(THREE.to_record().encode(0), 0)
    assert VoterSet.from_record(record) == THREE
