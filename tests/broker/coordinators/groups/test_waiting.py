"""The live page's sentences on the waits of a group's members."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.broker.coordinators.classic.events import GroupSettings
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import Member, MemberState
from barnabas.broker.coordinators.groups.waiting import (
    classic_sentence,
    consumer_sentence,
    join_reasons,
    share_sentence,
    streams_sentence,
    sync_reasons,
    tasks_in_words,
)
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.values import Member as ShareMember
from barnabas.broker.coordinators.share_groups.values import SharePartitions, TopicPart
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.topology.configured import configure
from barnabas.broker.coordinators.streams_groups.values import (
    CurrentAssignment,
    GroupEpoch,
    GroupTopology,
    MemberMetadata,
    OwnedTasks,
    Subtopology,
    TargetEpoch,
    Topology,
)
from barnabas.broker.coordinators.streams_groups.values import Member as StreamsMember
from barnabas.broker.coordinators.streams_groups.values import MemberState as StreamsMemberState
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


def test_a_share_group_says_what_it_waits_for() -> None:
    group = ShareGroup("g")
    assert share_sentence(group) == "has no members; it keeps share partitions"
    group.members = {
        "m1": ShareMember("m1", client_id="one", client_host="/10.0.0.1", epoch=2),
        "m2": ShareMember("m2", client_id="two", client_host="/10.0.0.2", epoch=1),
    }
    group.topic_names["t"] = 2
    group.partitions = SharePartitions(
        initializing={
            b"t" * 16: TopicPart("t", frozenset({0, 1, 2})),
            b"u" * 16: TopicPart("u", frozenset({0})),  # nobody reads it any more
        },
        initialized={b"t" * 16: TopicPart("t", frozenset({0}))},
    )
    assert share_sentence(group) == "initialises 2 share partitions for 2 members: t-1 and t-2"
    group.partitions = SharePartitions()
    group.epoch = 2
    assert share_sentence(group) == "is to assign partitions for epoch 2 (2 members)"
    group.assignment_epoch = 2
    assert share_sentence(group) == "waits for 1 of 2 members to get epoch 2: two (10.0.0.2)"
    del group.members["m2"]
    assert share_sentence(group) == "is stable: 1 member in epoch 2"


def streams_group(*members: StreamsMember, **epochs: int) -> StreamsGroup:
    """A streams group with these members, whose topology is validated."""
    group = StreamsGroup("s")
    topology = Topology(1, {"0": Subtopology("0", ("t",))})
    group.replay(GroupTopology(topology))
    group.replay(GroupEpoch(epochs.get("epoch", 3), 0, epochs.get("validated", 1)))
    group.replay(TargetEpoch(epochs.get("assigned", 3)))
    for member in members:
        group.replay(MemberMetadata(member.member_id, member))
        group.replay(CurrentAssignment(member.member_id, member))
    group.configured = configure(topology, lambda _name: None if epochs.get("validated", 1) < 0 else 2)
    return group


READY = StreamsMember("m1", client_id="c", client_host="/h", epoch=3)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (streams_group(), "has no members; it keeps offsets"),
        (streams_group(READY), "is stable: 1 member in epoch 3"),
        (streams_group(READY, epoch=4), "is to assign tasks for epoch 4 (1 member)"),
        (streams_group(READY, assigned=4, epoch=4), "waits for 1 of 1 member to reach epoch 4: c (h)"),
        (
            streams_group(READY, replace(READY, member_id="m2", state=StreamsMemberState.UNREVOKED_TASKS)),
            "waits for 1 of 2 members to revoke tasks: c (h)",
        ),
        (streams_group(READY, validated=-1), "has no tasks (1 member): Source topics t are missing."),
    ],
)
def test_a_streams_group_is_explained(group: StreamsGroup, expected: str) -> None:
    assert streams_sentence(group) == expected


def test_a_streams_group_that_is_to_stop_or_is_not_checked_yet_says_so() -> None:
    group = streams_group(READY, validated=-1)
    group.configured = None
    assert streams_sentence(group) == "has no tasks (1 member): its topology is not checked yet"
    group.shutdown_member_id = "m1"
    assert streams_sentence(group) == "is to shut down: member m1 asked for it (1 member left)"


def test_the_tasks_of_a_member_are_counted_by_role() -> None:
    some = frozenset({1, 2})
    has = OwnedTasks({"0": {1: 5}, "1": {1: 5, 2: 6}}, {"0": some}, {"1": some})
    member = StreamsMember("m", assigned=has, pending_revocation=OwnedTasks({"0": {2: 4}}, {"2": some}))
    assert tasks_in_words(member) == "3 active, 2 standby, 2 warm-up, 3 to revoke"
    assert tasks_in_words(StreamsMember("m")) == "none"
