"""Records of share groups: what is written is read; what other programs write is read or refused."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.offsets import records as all_records
from barnabas.broker.coordinators.share_groups import records
from barnabas.broker.coordinators.share_groups import values as v
from barnabas.broker.coordinators.share_groups.values import Member, SharePartitions, TopicPart
from barnabas.protocol.coordinator_records import share_groups as wire
from barnabas.protocol.coordinator_records.record import encode_versioned
from barnabas.protocol.errors import MalformedMessageError

T, U = b"t" * 16, b"u" * 16
MEMBER = Member("m", "rack", "client", "/host", frozenset({"t", "u"}))
EXAMPLES: list[v.Record] = [
    v.MemberMetadata("m", MEMBER),
    v.MemberMetadata("m", Member("m")),
    v.MemberMetadata("m", None),
    v.GroupEpoch(7, -5),
    v.GroupEpoch(None),
    v.TargetEpoch(7, 1234),
    v.TargetEpoch(None),
    v.TargetAssignment("m", {T: frozenset({0, 2}), U: frozenset({1})}),
    v.TargetAssignment("m", {}),
    v.TargetAssignment("m", None),
    v.CurrentAssignment("m", Member("m", epoch=7, previous_epoch=6, assigned={T: frozenset({1})})),
    v.CurrentAssignment("m", None),
    v.StatePartitions(
        SharePartitions({T: TopicPart("t", frozenset({0, 1}))}, {U: TopicPart("u", frozenset({5}))}, {b"w" * 16: "w"})
    ),
    v.StatePartitions(SharePartitions()),
    v.StatePartitions(None),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_what_is_written_is_read(record: v.Record) -> None:
    key, value = records.encode("g", record)
    assert (value is None) == v.is_tombstone(record)
    assert all_records.read(key, value, 0) == records.ShareGroupRecord("g", record)


def test_the_types_are_kafkas() -> None:
    assert [all_records.type_of(records.encode("g", record)[0]) for record in EXAMPLES] == [
        10, 10, 10, 11, 11, 12, 12, 13, 13, 13, 14, 14, 15, 15, 15,
    ]  # fmt: skip


def test_other_types_are_others() -> None:
    assert records.read(9, b"\0\x09", None) is None
    assert records.read(16, b"\0\x10", None) is None


def test_topics_without_partitions_are_none() -> None:
    key = encode_versioned(wire.ShareGroupStatePartitionMetadataKey(group_id="g"))
    value = wire.ShareGroupStatePartitionMetadataValue(
        initializing_topics=[wire.TopicPartitionsInfo(topic_id=T, topic_name="t", partitions=[])]
    )
    assert records.read(15, key, encode_versioned(value)) == ("g", v.StatePartitions(SharePartitions()))
    key = encode_versioned(wire.ShareGroupTargetAssignmentMemberKey(group_id="g", member_id="m"))
    twice = [wire.TopicPartition(topic_id=T, partitions=found) for found in ([], [1], [2, 2])]
    target = encode_versioned(wire.ShareGroupTargetAssignmentMemberValue(topic_partitions=twice))
    assert records.read(13, key, target) == ("g", v.TargetAssignment("m", {T: frozenset({1, 2})}))


def test_a_record_that_is_cut_short_is_refused() -> None:
    key, value = records.encode("g", EXAMPLES[0])
    assert value is not None
    with pytest.raises(MalformedMessageError):
        records.read(10, key, value[:-1])
    with pytest.raises(MalformedMessageError):
        records.read(10, key[:-1], value)
