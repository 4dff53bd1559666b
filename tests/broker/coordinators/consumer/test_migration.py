"""Migration from the classic to the consumer protocol and back: the conditions and the results.

Tests `coordinators/groups/classic_members.py`, too.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.consumer_protocol import read_assignment, write_assignment
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.members import Member as ClassicMember
from barnabas.broker.coordinators.consumer.environment import ConsumerGroupSettings
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.migration import (
    check_upgrade,
    may_downgrade,
    to_classic_group,
    to_consumer_group,
)
from barnabas.broker.coordinators.consumer.values import (
    ClassicPart,
    GroupState,
    Heartbeat,
    Member,
    MemberMetadata,
    TargetAssignment,
)
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot
from tests.broker.coordinators.group_rig import RANGE

SETTINGS = ConsumerGroupSettings()
T = b"t" * 16
SNAPSHOT = snapshot({"t": 4})
TWO = write_assignment({"t": frozenset({0, 1}), "gone": frozenset({0})}, 1)


def classic_group(
    assignment: bytes = TWO, metadata: bytes = RANGE[0][1], protocol_type: str = "consumer", count: int = 1
) -> Group:
    members = [
        ClassicMember(
            f"m{number}", f"i{number}", "client", "/h", 900, 800, protocol_type, (("range", metadata),), assignment
        )
        for number in range(count)
    ]
    return Group.from_log("g", 7, protocol_type, "range", "m0", 5, members)


class TestUp:
    def test_generation_becomes_epoch_and_assignment_target(self) -> None:
        group, records = to_consumer_group(classic_group(), SNAPSHOT)
        group.invariants()
        assert (group.epoch, group.assignment_epoch, group.state) == (7, 7, GroupState.STABLE)
        assert group.target == {"m0": {T: frozenset({0, 1})}}
        member = group.members["m0"]
        assert member.classic == ClassicPart(800, RANGE)
        assert (member.epoch, member.previous_epoch, member.assigned) == (7, 7, {T: {0: 7, 1: 7}})
        assert (member.topic_names, member.instance_id, member.rebalance_timeout_ms) == (frozenset("t"), "i0", 900)
        again = ConsumerGroup("g")
        for record in records:
            again.replay(record)
        assert again.members == group.members

    def test_who_has_not_synced_has_nothing(self) -> None:
        group, _ = to_consumer_group(classic_group(b""), SNAPSHOT)
        assert group.members["m0"].assigned == {}

    @pytest.mark.parametrize(
        ("assignment", "metadata", "why"),
        [
            (b"\0\1junk", RANGE[0][1], "because the embedded consumer protocol is malformed\\.$"),
            (TWO, b"\0\1junk", "because the embedded consumer protocol is malformed\\.$"),
            (TWO[:-4] + b"\0\0\0\1x", RANGE[0][1], "because an unsupported custom assignor is in use"),
        ],
    )
    def test_what_cannot_be_carried_over(self, assignment: bytes, metadata: bytes, why: str) -> None:
        with pytest.raises(ApiError, match=why) as caught:
            to_consumer_group(classic_group(assignment, metadata), SNAPSHOT)
        assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_the_log_says_what_is_malformed(self, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(ApiError):
            to_consumer_group(classic_group(TWO, b"\0\1junk"), SNAPSHOT)
        assert "malformed: ConsumerProtocolSubscription v1: topics passes the end of the message" in caplog.text

    @pytest.mark.parametrize(
        ("group", "settings"),
        [
            (classic_group(), dataclasses.replace(SETTINGS, may_upgrade=False)),
            (classic_group(protocol_type="connect"), SETTINGS),
            (classic_group(count=3), dataclasses.replace(SETTINGS, max_size=2)),
        ],
    )
    def test_which_groups_may_not(self, group: Group, settings: ConsumerGroupSettings) -> None:
        with pytest.raises(ApiError) as caught:
            check_upgrade(group, settings)
        assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
        check_upgrade(classic_group(), SETTINGS)


def mixed_group() -> ConsumerGroup:
    group, _ = to_consumer_group(classic_group(count=2, assignment=b""), SNAPSHOT)
    return add(group, Member("new", topic_names=frozenset("t")))


def add(group: ConsumerGroup, member: Member) -> ConsumerGroup:
    group.replay(MemberMetadata(member.member_id, member))
    group.replay(TargetAssignment(member.member_id, {T: frozenset({3})}))
    return group


class TestDown:
    def test_only_when_none_but_classic_members_are_left(self) -> None:
        group = mixed_group()
        assert may_downgrade(group, {"new"}, SETTINGS)
        assert not may_downgrade(group, set(), SETTINGS)
        assert not may_downgrade(group, {"new", "m0", "m1"}, SETTINGS), "an empty group keeps its type"
        assert not may_downgrade(group, {"new"}, dataclasses.replace(SETTINGS, may_downgrade=False))
        assert not may_downgrade(group, {"new"}, dataclasses.replace(SETTINGS, classic_max_size=1))
        assert not may_downgrade(add(mixed_group(), Member("newer")), {"new"}, SETTINGS)

    def test_those_who_stay_are_a_stable_group(self) -> None:
        classic = to_classic_group(mixed_group(), {"new"}, SNAPSHOT, 99)
        classic.members.invariants()
        assert (classic.state, classic.generation_id, classic.protocol_name) == (ev.GroupState.STABLE, 7, "range")
        assert (list(classic.members.by_id), classic.members.leader_id) == (["m0", "m1"], "m0")
        assert classic.topics == {"t"}
        assert all(read_assignment(data).partitions == {} for data in classic.assignments().values())

    def test_who_joins_takes_the_place_and_the_target_of_who_leaves(self) -> None:
        joining = Member("back", "i9", classic=ClassicPart(800, RANGE))
        classic = to_classic_group(mixed_group(), {"new"}, SNAPSHOT, 99, joining, "new")
        assert list(classic.members.by_id) == ["m0", "m1", "back"]
        assert read_assignment(classic.assignments()["back"]).partitions == {"t": frozenset({3})}


@pytest.mark.parametrize(
    ("policy", "up", "down", "joins"),
    [
        ("disabled", False, False, False), ("UPGRADE", True, False, True), ("Downgrade", False, True, True),
        ("bidirectional", True, True, True),
    ],
)  # fmt: skip
def test_the_policy_opens_the_ways(policy: str, up: bool, down: bool, joins: bool) -> None:
    world = World(group_consumer_migration_policy=policy)
    settings = world.coordinator._context.consumers.settings
    assert (settings.may_upgrade, settings.may_downgrade) == (up, down)
    results: list[Any] = []
    request = Heartbeat("a", 0, rebalance_timeout_ms=9, topic_names=frozenset("t"), owned={})
    world.coordinator.consumer_heartbeat("g", request, results.append)
    event = ev.Join("", "c", None, "c", "/h", 10_000, 10_000, "consumer", RANGE, 3, None, results.append)
    world.coordinator.join("g", event)
    assert (results[-1].error is ErrorCode.NONE) == joins
    assert results[-1].error in (ErrorCode.NONE, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def test_an_empty_group_knows_no_member_and_makes_way_for_a_classic_group() -> None:
    world = World()
    results: list[Any] = []
    request = Heartbeat("a", 0, rebalance_timeout_ms=9000, topic_names=frozenset("t"), owned={})
    world.coordinator.consumer_heartbeat("g", request, results.append)
    world.coordinator.consumer_heartbeat("g", Heartbeat("a", -1), results.append)
    for member_id in ("b", ""):
        event = ev.Join(member_id, "c", None, "c", "/h", 10_000, 10_000, "consumer", RANGE, 3, None, results.append)
        world.coordinator.join("g", event)
    refused, joined = results[-2:]
    assert (refused.error, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "b")
    assert (joined.error, joined.member_id) == (ErrorCode.NONE, "c")
    assert [group.type for group in world.coordinator.list_groups([])[1]] == ["classic"]


def test_a_static_member_of_the_classic_protocol_in_the_place_of_the_last_consumer_ends_the_migration() -> None:
    """A rolling downgrade of static members: no rebalance, the newcomer has the same partitions."""
    world = World()
    results: list[Any] = []
    request = Heartbeat("a", 0, "i", rebalance_timeout_ms=9000, topic_names=frozenset("t"), owned={})
    world.coordinator.consumer_heartbeat("g", request, results.append)
    event = ev.Join("", "b", "i", "c", "/h", 10_000, 10_000, "consumer", RANGE, 9, None, results.append)
    world.coordinator.join("g", event)
    joined = results[-1]
    assert (joined.error, joined.member_id) == (ErrorCode.NONE, "b")
    assert [group.type for group in world.coordinator.list_groups([])[1]] == ["classic"]
    world.coordinator.sync("g", ev.Sync("b", "i", joined.generation_id, None, None, {}, results.append))
    assert read_assignment(results[-1].assignment).partitions == {"t": frozenset({0, 1})}
    world.fail_over()
    assert world.coordinator.heartbeat("g", "b", "i", joined.generation_id) == ErrorCode.NONE
