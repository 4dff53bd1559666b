"""Records of streams groups: what is written is read; what other programs write is read or refused."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.offsets import records as all_records
from barnabas.broker.coordinators.streams_groups import records
from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.coordinators.streams_groups.values import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    Member,
    MemberState,
    OwnedTasks,
    Subtopology,
    Tasks,
    Topology,
)
from barnabas.protocol.coordinator_records import streams_groups as wire
from barnabas.protocol.coordinator_records.record import encode_versioned
from barnabas.protocol.errors import MalformedMessageError

IDENTITY = Member(
    "m", "instance", "rack", "client", "/host", 300_000, 4, "process", Endpoint("h", 65535), {"zone": "a", "rack": "b"}
)
CURRENT = Member(
    "m",
    epoch=7,
    previous_epoch=6,
    state=MemberState.UNREVOKED_TASKS,
    assigned=OwnedTasks({"0": {1: 7, 0: 3}}, {"1": frozenset({2})}, {"1": frozenset({3})}),
    pending_revocation=OwnedTasks({"2": {5: 1}}, {"2": frozenset({4})}, {"0": frozenset({6})}),
)
SUBTOPOLOGY = Subtopology(
    "0",
    ("a", "b"),
    ("c.*",),
    (InternalTopic("g-store-changelog", 0, 3, (("cleanup.policy", "compact"), ("a", "b"))),),
    ("g-sink-repartition",),
    (InternalTopic("g-in-repartition", 5),),
    (CopartitionGroup((0, 1), (0,), (0,)), CopartitionGroup()),
)
EXAMPLES: list[v.Record] = [
    v.GroupEpoch(7, -5, 3, {"num.standby.replicas": "1", "a": "b"}),
    v.GroupEpoch(1),
    v.GroupEpoch(None),
    v.MemberMetadata("m", IDENTITY),
    v.MemberMetadata("m", Member("m")),
    v.MemberMetadata("m", None),
    v.TargetEpoch(7, 1234),
    v.TargetEpoch(None),
    v.TargetAssignment("m", Tasks({"1": frozenset({0, 2}), "0": frozenset({1})}, {"0": frozenset({0})}, {})),
    v.TargetAssignment("m", Tasks(warmup={"0": frozenset({9})})),
    v.TargetAssignment("m", None),
    v.CurrentAssignment("m", CURRENT),
    v.CurrentAssignment("m", None),
    v.GroupTopology(Topology(4, {"0": SUBTOPOLOGY, "1": Subtopology("1")})),
    v.GroupTopology(None),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_what_is_written_is_read(record: v.Record) -> None:
    key, value = records.encode("g", record)
    assert (value is None) == v.is_tombstone(record)
    assert records.read(all_records.type_of(key), key, value) == records.StreamsGroupRecord("g", record)


def test_the_types_are_kafkas() -> None:
    assert [all_records.type_of(records.encode("g", record)[0]) for record in EXAMPLES] == [
        17, 17, 17, 19, 19, 19, 20, 20, 21, 21, 21, 22, 22, 23, 23,
    ]  # fmt: skip


def test_other_types_are_others() -> None:
    for other in (16, 18, 24):
        assert records.read(other, bytes((0, other)), None) is None


def test_equal_values_have_equal_bytes() -> None:
    one = Tasks({"0": frozenset({8, 1}), "1": frozenset({2})})
    other = Tasks({"1": frozenset({2}), "0": frozenset({1, 8})})
    assert records.encode("g", v.TargetAssignment("m", one)) == records.encode("g", v.TargetAssignment("m", other))


def current(**fields: object) -> Member:
    key = wire.StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = wire.StreamsGroupCurrentMemberAssignmentValue(member_epoch=9, state=1, **fields)
    found = records.read(22, encode_versioned(key), encode_versioned(value))
    assert found is not None
    assert isinstance(found.record, v.CurrentAssignment)
    assert found.record.member is not None
    return found.record.member


@pytest.mark.parametrize("epochs", [None, [1], [1, 2, 3], []])
def test_tasks_without_usable_epochs_have_the_epoch_of_the_member(epochs: list[int] | None) -> None:
    ids = wire.StreamsGroupCurrentMemberAssignmentTaskIds(
        subtopology_id="0", partitions=[3, 4], assignment_epochs=epochs
    )
    assert current(active_tasks=[ids]).assigned.active == {"0": {3: 9, 4: 9}}


def test_subtopologies_without_tasks_are_left_out_and_repeated_ones_are_joined() -> None:
    def ids(id_: str, *partitions: int) -> wire.StreamsGroupCurrentMemberAssignmentTaskIds:
        return wire.StreamsGroupCurrentMemberAssignmentTaskIds(
            subtopology_id=id_, partitions=list(partitions), assignment_epochs=list(partitions)
        )

    tasks = [ids("0"), ids("1", 1), ids("1", 2)]
    found = current(active_tasks=tasks, standby_tasks=tasks)
    assert found.assigned == OwnedTasks({"1": {1: 1, 2: 2}}, {"1": frozenset({1, 2})})


def test_a_state_of_newer_software_is_unknown() -> None:
    key, value = records.encode("g", v.CurrentAssignment("m", CURRENT))
    assert value is not None
    state_at = 2 + 4 + 4  # after the version and the epochs
    changed = value[:state_at] + b"\x09" + value[state_at + 1 :]
    found = records.read(22, key, changed)
    assert found is not None
    assert isinstance(found.record, v.CurrentAssignment)
    assert found.record.member is not None
    assert found.record.member.state is MemberState.UNKNOWN


def test_cut_values_are_refused() -> None:
    key, value = records.encode("g", v.GroupTopology(Topology(4, {"0": SUBTOPOLOGY})))
    assert value is not None
    with pytest.raises(MalformedMessageError):
        records.read(23, key, value[:-3])
