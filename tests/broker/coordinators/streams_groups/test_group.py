"""A streams group: the table of its states, replay of every record, and who may commit and fetch offsets."""

from __future__ import annotations

import itertools
import random

import pytest

from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.values import (
    GroupState,
    InternalTopic,
    Member,
    MemberState,
    OwnedTasks,
    Subtopology,
    TaskId,
    Tasks,
    Topology,
)
from barnabas.protocol.errors import ApiError, ErrorCode

TOPOLOGY = Topology(
    2,
    {
        "0": Subtopology("0", ("a", "b"), changelogs=(InternalTopic("c"),), repartition_sinks=("r",)),
        "1": Subtopology("1", repartition_sources=(InternalTopic("r"),)),
    },
)
TASKS = Tasks({"0": frozenset({0})})


def group(*records: v.Record) -> StreamsGroup:
    made = StreamsGroup("g")
    for record in records:
        made.replay(record)
        made.invariants()
    return made


def with_member(member: Member, *records: v.Record) -> StreamsGroup:
    identity, current = v.MemberMetadata(member.member_id, member), v.CurrentAssignment(member.member_id, member)
    return group(identity, current, *records)


# States

# The questions that decide: removed? members? topology: none, of another epoch, validated? group epoch above the
# assignment epoch? are the members reconciled?
CELLS = list(
    itertools.product(
        (False, True), (False, True), ("none", "not validated", "validated"), (False, True), (False, True)
    )
)


def expected_state(*, is_gone: bool, has_members: bool, topology: str, is_behind: bool, is_done: bool) -> GroupState:
    if is_gone:
        return GroupState.DEAD
    if not has_members:
        return GroupState.EMPTY
    if topology != "validated":
        return GroupState.NOT_READY
    if is_behind:
        return GroupState.ASSIGNING
    return GroupState.STABLE if is_done else GroupState.RECONCILING


@pytest.mark.parametrize(("is_gone", "has_members", "topology", "is_behind", "is_done"), CELLS)
def test_every_cell_of_the_states(
    is_gone: bool, has_members: bool, topology: str, is_behind: bool, is_done: bool
) -> None:
    validated = {"none": 2, "not validated": -1, "validated": 2}[topology]
    made = group(v.GroupEpoch(5, 0, validated), v.TargetEpoch(4 if is_behind else 5))
    if topology != "none":
        made.replay(v.GroupTopology(TOPOLOGY))
    if has_members:
        epoch = made.assignment_epoch
        for name, state in (("m", MemberState.STABLE), ("n", MemberState.STABLE if is_done else MemberState(3))):
            made.replay(v.MemberMetadata(name, Member(name)))
            made.replay(v.CurrentAssignment(name, Member(name, epoch=epoch, state=state)))
    if is_gone:
        made.replay(v.GroupEpoch(None))
    assert made.state is expected_state(
        is_gone=is_gone, has_members=has_members, topology=topology, is_behind=is_behind, is_done=is_done
    )


@pytest.mark.parametrize(
    ("state", "epoch", "expected"),
    [(state, 5, state is MemberState.STABLE) for state in MemberState] + [(MemberState.STABLE, 4, False)],
)
def test_a_group_is_stable_when_each_member_is_in_the_epoch_and_stable(
    state: MemberState, epoch: int, expected: bool
) -> None:
    made = with_member(
        Member("m", epoch=epoch, state=state), v.GroupEpoch(5, 0, 2), v.TargetEpoch(5), v.GroupTopology(TOPOLOGY)
    )
    assert (made.state is GroupState.STABLE) is expected


# Records


def test_what_records_say() -> None:
    made = with_member(
        Member("m", client_id="c", epoch=5, assigned=OwnedTasks({"0": {0: 5}})),
        v.GroupEpoch(6, 77, 2, {"a": "b"}),
        v.TargetEpoch(5, 99),
        v.TargetAssignment("m", TASKS),
        v.GroupTopology(TOPOLOGY),
    )
    assert (made.epoch, made.metadata_hash, made.validated_topology_epoch) == (6, 77, 2)
    assert made.assignment_configs == {"a": "b"}
    assert (made.assignment_epoch, made.assignment_timestamp_ms) == (5, 99)
    assert (made.target_of("m"), made.target_of("n")) == (TASKS, Tasks())
    assert made.topology is TOPOLOGY
    assert made.readers == {"a": "0", "b": "0", "r": "1"}
    assert (made.protocol_type, made.member("m").client_id) == ("streams", "c")
    assert not made.owners.is_free_for_active(TaskId("0", 0), "p")


def test_what_tombstones_remove() -> None:
    member = Member("m", epoch=5, assigned=OwnedTasks({"0": {0: 5}}))
    made = with_member(
        member, v.GroupEpoch(6, 77, 2), v.TargetEpoch(5, 99), v.TargetAssignment("m", TASKS), v.GroupTopology(TOPOLOGY)
    )
    for record in made.tombstones():
        assert v.is_tombstone(record)
        made.replay(record)
        made.invariants()
    assert made.state is GroupState.DEAD
    assert (made.members, made.target, made.topology, made.readers) == ({}, {}, None, {})
    assert (made.assignment_epoch, made.assignment_timestamp_ms) == (1, 0)
    made.replay(v.GroupEpoch(1))
    assert made.state is GroupState.EMPTY


def test_a_member_without_its_assignment_has_left() -> None:
    made = with_member(Member("m", client_id="c", epoch=5, assigned=OwnedTasks({"0": {0: 5}})))
    made.replay(v.CurrentAssignment("m", None))
    assert (made.member("m").client_id, made.member("m").epoch, made.member("m").assigned) == ("c", -1, OwnedTasks())
    assert made.owners.is_free_for_active(TaskId("0", 0), "p")


@pytest.mark.parametrize(
    "record",
    [v.MemberMetadata("m", None), v.CurrentAssignment("m", None), v.TargetAssignment("m", None), v.GroupTopology(None)],
)
def test_records_about_what_is_gone_do_nothing(record: v.Record) -> None:
    assert group(record).members == {}


def test_an_assignment_before_its_member_and_the_other_way_round() -> None:
    identity = Member("m", client_id="c", process_id="p")
    current = Member("m", epoch=3, assigned=OwnedTasks({}, {"0": frozenset({1})}))
    records = [v.MemberMetadata("m", identity), v.CurrentAssignment("m", current)]
    assert group(*records).members == group(*reversed(records)).members == {"m": current.with_metadata_of(identity)}


def test_the_demand_to_shut_down_ends_with_the_last_member() -> None:
    made = group(v.MemberMetadata("m", Member("m")), v.MemberMetadata("n", Member("n")))
    made.shutdown_member_id = "m"
    made.replay(v.MemberMetadata("m", None))
    assert made.shutdown_member_id == "m"
    made.replay(v.MemberMetadata("n", None))
    assert made.shutdown_member_id is None


@pytest.mark.parametrize("seed", range(10))
def test_any_records_in_any_order_keep_the_invariants(seed: int) -> None:
    rng = random.Random(seed)

    def owned() -> OwnedTasks:
        parts = {id_: frozenset(rng.sample(range(3), 2)) for id_ in rng.sample("012", rng.randint(0, 2))}
        return OwnedTasks({id_: dict.fromkeys(found, 1) for id_, found in parts.items()}, parts, parts)

    def record() -> v.Record:
        name = rng.choice("mno")
        is_removed = rng.random() < 0.3
        member = Member(name, process_id=rng.choice("pq"), epoch=rng.randrange(5), assigned=owned())
        return rng.choice(
            [
                v.MemberMetadata(name, None if is_removed else member),
                v.CurrentAssignment(name, None if is_removed else member),
                v.TargetAssignment(name, None if is_removed else TASKS),
                v.TargetEpoch(None if is_removed else rng.randrange(5)),
                v.GroupEpoch(None if is_removed else rng.randrange(5), 0, rng.randrange(-1, 3)),
                v.GroupTopology(None if is_removed else TOPOLOGY),
            ]
        )

    made = StreamsGroup("g")
    for _ in range(200):
        made.replay(record())
        made.invariants()
        assert made.state in GroupState


# Requests


def test_a_group_with_members_is_not_deleted_and_keeps_the_offsets_of_its_sources() -> None:
    made = with_member(Member("m"), v.GroupTopology(TOPOLOGY))
    assert (made.is_idle, made.delete_error()) == (False, ErrorCode.NON_EMPTY_GROUP)
    assert [made.is_subscribed_to(topic) for topic in "abrc"] == [True, True, True, False]
    made.replay(v.MemberMetadata("m", None))
    assert (made.is_idle, made.delete_error(), made.offset_delete_error()) == (True, ErrorCode.NONE, ErrorCode.NONE)
    assert not made.is_subscribed_to("a")


def commit_error(
    made: StreamsGroup, member_id: str = "m", epoch: int = 5, *, version: int = 9, is_transactional: bool = False,
    topic: str = "a", partition: int = 0, instance_id: str | None = None,
) -> ErrorCode:  # fmt: skip
    try:
        made.check_commit(
            member_id, instance_id, epoch, version, is_transactional=is_transactional, partitions=[(topic, partition)]
        )
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


MEMBER = Member("m", epoch=5, assigned=OwnedTasks({"0": {0: 3}}), pending_revocation=OwnedTasks({"0": {1: 4}}))
NONE, STALE, UNKNOWN = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, NONE),
        ({"epoch": 6}, STALE),
        ({"epoch": 3}, NONE),
        ({"epoch": 2}, STALE),
        ({"epoch": 4, "partition": 1}, NONE),  # pending revocation
        ({"epoch": 3, "partition": 1}, STALE),
        ({"epoch": 4, "partition": 2}, STALE),  # not a task of the member
        ({"epoch": 5, "partition": 2}, NONE),  # in its epoch, a member may commit anything
        ({"epoch": 4, "topic": "r"}, STALE),
        ({"epoch": 4, "topic": "x"}, STALE),
        ({"epoch": -1}, STALE),
        ({"epoch": -1, "member_id": ""}, UNKNOWN),
        ({"member_id": "n"}, UNKNOWN),
        ({"version": 8}, ErrorCode.UNSUPPORTED_VERSION),
        ({"version": 3, "is_transactional": True}, NONE),
        ({"epoch": 6, "is_transactional": True}, STALE),
        ({"epoch": -1, "member_id": "", "is_transactional": True}, NONE),
        ({"epoch": -1, "member_id": "", "instance_id": "i", "is_transactional": True}, UNKNOWN),
    ],
)
def test_who_may_commit(arguments: dict[str, object], expected: ErrorCode) -> None:
    assert commit_error(with_member(MEMBER, v.GroupTopology(TOPOLOGY)), **arguments) is expected  # type: ignore[arg-type]


def test_without_members_everybody_may_commit() -> None:
    assert commit_error(group(), "", -1) is NONE
    assert commit_error(group(), "m", 0) is UNKNOWN


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [(None, -1, NONE), ("m", 5, NONE), ("m", 4, STALE), ("m", 6, STALE), ("n", 5, UNKNOWN), (None, 5, UNKNOWN)],
)
def test_who_may_fetch(member_id: str | None, epoch: int, expected: ErrorCode) -> None:
    made = with_member(MEMBER)
    if expected is NONE:
        made.check_fetch(member_id, epoch)
        return
    with pytest.raises(ApiError) as caught:
        made.check_fetch(member_id, epoch)
    assert caught.value.code is expected
