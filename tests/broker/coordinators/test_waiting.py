"""What members of a group wait for, in words."""

from __future__ import annotations

from barnabas.broker.coordinators.consumer_group import ConsumerGroup
from barnabas.broker.coordinators.consumer_group_types import Member, MemberState
from barnabas.broker.coordinators.group_events import GroupSettings
from barnabas.broker.coordinators.waiting import classic_sentence, consumer_sentence, join_reasons, sync_reasons
from tests.broker.coordinators.group_room import Room

INITIAL_MS = 3000


def sentence(room: Room) -> str:
    return classic_sentence(room.group, room.now_ms, INITIAL_MS)


def test_the_first_members_wait_for_more_to_come() -> None:
    room = Room(GroupSettings(initial_rebalance_delay_ms=INITIAL_MS))
    room.join("m1")
    (reason,) = join_reasons(room.group, room.now_ms, INITIAL_MS)
    assert (reason["kind"], reason["group"]) == ("delay", "g")
    assert reason["text"] == "for more members of group g to come (initial rebalance delay 3.0 s)"


def test_a_member_that_joins_waits_for_those_who_have_not_joined_again() -> None:
    room = Room().make_stable("m1", "m2", "m3")
    assert sentence(room) == "is stable: 3 members in generation 1"
    room.join("again", "m1")
    room.now_ms += 1_500
    (reason,) = join_reasons(room.group, room.now_ms, INITIAL_MS)
    assert (reason["kind"], reason["members"], reason["left_ms"]) == ("members", ["m2", "m3"], 28_500)
    assert reason["text"] == (
        "for 2 of 3 members of group g to join: client (127.0.0.1) and client (127.0.0.1); they have 28.5 s left"
    )
    assert sentence(room) == f"gathers its members: waits {reason['text']}"
    assert sync_reasons(room.group)[0]["text"] == "for group g to answer: it is PreparingRebalance"


def test_a_member_that_was_named_and_has_not_joined_yet_is_missing_too() -> None:
    room = Room().make_stable("m1")
    room.join("named", version=9, new_id="fresh")
    room.join("again", "m1")
    (reason,) = join_reasons(room.group, room.now_ms, INITIAL_MS)
    assert reason["members"] == ["fresh"]
    assert reason["text"].startswith("for 1 of 2 members of group g to join: fresh (new)")


def test_members_wait_for_the_leaders_assignment_then_for_it_to_be_written() -> None:
    room = Room().make_stable("m1", "m2")
    room.stores = False
    for member in ("m1", "m2"):
        room.join(f"{member}-again", member)
    room.sync("m2-sync", "m2")
    (reason,) = sync_reasons(room.group)
    assert (reason["kind"], reason["members"]) == ("assignment", ["m1"])
    assert reason["text"] == "for the leader, client (127.0.0.1), to assign partitions in generation 2 of group g"
    assert sentence(room) == f"hands out partitions: waits {reason['text']}"
    assert join_reasons(room.group, 0, 0)[0]["text"] == "for group g to answer: it is CompletingRebalance"
    room.sync("m1-sync", "m1", m1=b"1", m2=b"2")
    (reason,) = sync_reasons(room.group)
    assert reason["text"] == "for the assignment of generation 2 of group g to be on all in-sync replicas"


def test_an_empty_group_keeps_offsets() -> None:
    assert sentence(Room()) == "has no members; it keeps offsets"


def test_consumer_groups() -> None:
    group = ConsumerGroup("g")
    assert consumer_sentence(group) == "has no members; it keeps offsets"
    group.members = {
        "m1": Member("m1", client_id="one", client_host="/10.0.0.1", epoch=2),
        "m2": Member("m2", client_id="two", client_host="/10.0.0.2", epoch=1),
    }
    group.epoch = 2
    assert consumer_sentence(group) == "computes a new assignment for epoch 2 (2 members)"
    group.assignment_epoch = 2
    assert consumer_sentence(group) == "waits for 1 of 2 members to reach epoch 2: two (10.0.0.2)"
    group.members["m1"] = Member(
        "m1", client_id="one", client_host="/10.0.0.1", epoch=1, state=MemberState.UNREVOKED_PARTITIONS
    )
    assert consumer_sentence(group) == "waits for 1 of 2 members to give up partitions: one (10.0.0.1)"
    group.members = {"m1": Member("m1", epoch=2)}
    assert consumer_sentence(group) == "is stable: 1 member in epoch 2"
