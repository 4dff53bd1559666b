"""The live page's sentences on the waits of a group's members."""

from __future__ import annotations

from barnabas.broker.coordinators.classic.events import GroupSettings
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import Member, MemberState
from barnabas.broker.coordinators.groups.waiting import classic_sentence, consumer_sentence, join_reasons, sync_reasons
from tests.broker.coordinators.group_rig import GroupShardRig

INITIAL_MS = 3000


def sentence(rig: GroupShardRig) -> str:
    return classic_sentence(rig.group, rig.now_ms, INITIAL_MS)


def test_the_first_members_wait_for_more_to_come() -> None:
    rig = GroupShardRig(GroupSettings(initial_rebalance_delay_ms=INITIAL_MS))
    rig.join("m1")
    (reason,) = join_reasons(rig.group, rig.now_ms, INITIAL_MS)
    assert (reason["kind"], reason["group"]) == ("delay", "g")
    assert reason["text"] == "for more members of group g to join (initial rebalance delay 3.0 s)"


def test_a_member_that_joins_waits_for_those_who_have_not_joined_again() -> None:
    rig = GroupShardRig().make_stable("m1", "m2", "m3")
    assert sentence(rig) == "is stable: 3 members in generation 1"
    rig.join("again", "m1")
    rig.now_ms += 1_500
    (reason,) = join_reasons(rig.group, rig.now_ms, INITIAL_MS)
    assert (reason["kind"], reason["members"], reason["left_ms"]) == ("members", ["m2", "m3"], 28_500)
    assert reason["text"] == (
        "for 2 of 3 members of group g to join: client (127.0.0.1) and client (127.0.0.1); they have 28.5 s left"
    )
    assert sentence(rig) == f"gathers its members: waits {reason['text']}"
    assert sync_reasons(rig.group)[0]["text"] == "for group g to answer: it is PreparingRebalance"


def test_a_member_that_was_named_and_has_not_joined_yet_is_missing_too() -> None:
    rig = GroupShardRig().make_stable("m1")
    rig.join("named", version=9, new_id="fresh")
    rig.join("again", "m1")
    (reason,) = join_reasons(rig.group, rig.now_ms, INITIAL_MS)
    assert reason["members"] == ["fresh"]
    assert reason["text"].startswith("for 1 of 2 members of group g to join: fresh (new)")


def test_members_wait_for_the_leaders_assignment_then_for_it_to_be_written() -> None:
    rig = GroupShardRig().make_stable("m1", "m2")
    rig.stores = False
    for member in ("m1", "m2"):
        rig.join(f"{member}-again", member)
    rig.sync("m2-sync", "m2")
    (reason,) = sync_reasons(rig.group)
    assert (reason["kind"], reason["members"]) == ("assignment", ["m1"])
    assert reason["text"] == "for the leader, client (127.0.0.1), to assign partitions in generation 2 of group g"
    assert sentence(rig) == f"assigns partitions: waits {reason['text']}"
    assert join_reasons(rig.group, 0, 0)[0]["text"] == "for group g to answer: it is CompletingRebalance"
    rig.sync("m1-sync", "m1", m1=b"1", m2=b"2")
    (reason,) = sync_reasons(rig.group)
    assert reason["text"] == "for the assignment of generation 2 of group g to be on all in-sync replicas"


def test_an_empty_group_keeps_offsets() -> None:
    assert sentence(GroupShardRig()) == "has no members; it keeps offsets"


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
    assert consumer_sentence(group) == "waits for 1 of 2 members to revoke partitions: one (10.0.0.1)"
    group.members = {"m1": Member("m1", epoch=2)}
    assert consumer_sentence(group) == "is stable: 1 member in epoch 2"
