"""Encodes and decodes the records of share groups (KIP-932) in __consumer_offsets.

Format (each key begins with its record type, each value with its version, 0; value null: a tombstone)
    10  ShareGroupMemberMetadata            group, member
    11  ShareGroupMetadata                  group         the group's epoch
    12  ShareGroupTargetAssignmentMetadata  group         the assignment epoch
    13  ShareGroupTargetAssignmentMember    group, member
    14  ShareGroupCurrentMemberAssignment   group, member
    15  ShareGroupStatePartitionMetadata    group         the share partitions

Source: Kafka's GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.coordinators.consumer.values import Assignment
from barnabas.broker.coordinators.share_groups import values as v
from barnabas.broker.coordinators.share_groups.values import Member, Record, SharePartitions, TopicPart, TopicParts
from barnabas.protocol.coordinator_records import share_groups as wire
from barnabas.protocol.coordinator_records.record import (
    CoordinatorKey,
    CoordinatorValue,
    decode_versioned,
    encode_versioned,
)

KeyValue: TypeAlias = tuple[bytes, bytes | None]
Pair: TypeAlias = tuple[CoordinatorKey, CoordinatorValue | None]

STABLE = 0  # the code of the only state of a member


class ShareGroupRecord(NamedTuple):
    """A record and its group."""

    group_id: str
    record: Record


def encode(group_id: str, record: Record) -> KeyValue:
    """Build the key and the value of a record."""
    key, value = WRITERS[type(record)](group_id, record)
    return encode_versioned(key), None if value is None else encode_versioned(value)


def read(record_type: int, key: bytes, value: bytes | None) -> ShareGroupRecord | None:
    """Decode a record of this type; None if it is not a share group's. Raises MalformedMessageError."""
    classes = CLASSES.get(record_type)
    if classes is None:
        return None
    key_class, value_class, reader = classes
    parsed_key: Any = decode_versioned(key_class, key)
    parsed_value: Any = None if value is None else decode_versioned(value_class, value)
    return ShareGroupRecord(parsed_key.group_id, reader(parsed_key, parsed_value))


# Writing


def _write_member(group_id: str, record: v.MemberMetadata) -> Pair:
    key = wire.ShareGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
    member = record.member
    if member is None:
        return key, None
    return key, wire.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )


def _write_epoch(group_id: str, record: v.GroupEpoch) -> Pair:
    key = wire.ShareGroupMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ShareGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)


def _write_target_epoch(group_id: str, record: v.TargetEpoch) -> Pair:
    key = wire.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.timestamp_ms
    )


def _write_target(group_id: str, record: v.TargetAssignment) -> Pair:
    key = wire.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
    if record.assignment is None:
        return key, None
    topics = [wire.TopicPartition(topic_id=id_, partitions=sorted(found)) for id_, found in record.assignment.items()]
    return key, wire.ShareGroupTargetAssignmentMemberValue(topic_partitions=topics)


def _write_current(group_id: str, record: v.CurrentAssignment) -> Pair:
    key = wire.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=record.member_id)
    member = record.member
    if member is None:
        return key, None
    topics = [wire.TopicPartitions(topic_id=id_, partitions=sorted(found)) for id_, found in member.assigned.items()]
    return key, wire.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=topics,
    )


def _write_partitions(group_id: str, record: v.StatePartitions) -> Pair:
    key = wire.ShareGroupStatePartitionMetadataKey(group_id=group_id)
    parts = record.partitions
    if parts is None:
        return key, None
    return key, wire.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_parts_to_wire(parts.initializing),
        initialized_topics=_parts_to_wire(parts.initialized),
        deleting_topics=[wire.TopicInfo(topic_id=id_, topic_name=name) for id_, name in parts.deleting.items()],
    )


def _parts_to_wire(parts: TopicParts) -> list[wire.TopicPartitionsInfo]:
    return [
        wire.TopicPartitionsInfo(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
        for topic_id, (name, partitions) in parts.items()
    ]


WRITERS: Mapping[type[Any], Callable[[str, Any], Pair]] = {
    v.MemberMetadata: _write_member,
    v.GroupEpoch: _write_epoch,
    v.TargetEpoch: _write_target_epoch,
    v.TargetAssignment: _write_target,
    v.CurrentAssignment: _write_current,
    v.StatePartitions: _write_partitions,
}

# Reading


def _read_member(
    key: wire.ShareGroupMemberMetadataKey, value: wire.ShareGroupMemberMetadataValue | None
) -> v.MemberMetadata:
    if value is None:
        return v.MemberMetadata(key.member_id, None)
    member = Member(
        member_id=key.member_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
    )
    return v.MemberMetadata(key.member_id, member)


def _read_epoch(_key: wire.ShareGroupMetadataKey, value: wire.ShareGroupMetadataValue | None) -> v.GroupEpoch:
    return v.GroupEpoch(None) if value is None else v.GroupEpoch(value.epoch, value.metadata_hash)


def _read_target_epoch(
    _key: wire.ShareGroupTargetAssignmentMetadataKey, value: wire.ShareGroupTargetAssignmentMetadataValue | None
) -> v.TargetEpoch:
    return v.TargetEpoch(None) if value is None else v.TargetEpoch(value.assignment_epoch, value.assignment_timestamp)


def _read_target(
    key: wire.ShareGroupTargetAssignmentMemberKey, value: wire.ShareGroupTargetAssignmentMemberValue | None
) -> v.TargetAssignment:
    return v.TargetAssignment(key.member_id, None if value is None else _assignment(value.topic_partitions))


def _read_current(
    key: wire.ShareGroupCurrentMemberAssignmentKey, value: wire.ShareGroupCurrentMemberAssignmentValue | None
) -> v.CurrentAssignment:
    if value is None:
        return v.CurrentAssignment(key.member_id, None)
    member = Member(
        key.member_id,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        assigned=_assignment(value.assigned_partitions),
    )
    return v.CurrentAssignment(key.member_id, member)


def _read_partitions(
    _key: wire.ShareGroupStatePartitionMetadataKey, value: wire.ShareGroupStatePartitionMetadataValue | None
) -> v.StatePartitions:
    if value is None:
        return v.StatePartitions(None)
    parts = SharePartitions(
        _parts_from_wire(value.initializing_topics),
        _parts_from_wire(value.initialized_topics),
        {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
    )
    return v.StatePartitions(parts)


def _assignment(topics: Sequence[wire.TopicPartition] | Sequence[wire.TopicPartitions]) -> Assignment:
    found: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        partitions = found.get(topic.topic_id, frozenset()).union(topic.partitions)
        if partitions:
            found[topic.topic_id] = partitions
    return found


def _parts_from_wire(topics: Sequence[wire.TopicPartitionsInfo]) -> TopicParts:
    return {
        topic.topic_id: TopicPart(topic.topic_name, frozenset(topic.partitions)) for topic in topics if topic.partitions
    }


CLASSES: Mapping[int, tuple[type[CoordinatorKey], type[CoordinatorValue], Callable[[Any, Any], Record]]] = {
    10: (wire.ShareGroupMemberMetadataKey, wire.ShareGroupMemberMetadataValue, _read_member),
    11: (wire.ShareGroupMetadataKey, wire.ShareGroupMetadataValue, _read_epoch),
    12: (wire.ShareGroupTargetAssignmentMetadataKey, wire.ShareGroupTargetAssignmentMetadataValue, _read_target_epoch),
    13: (wire.ShareGroupTargetAssignmentMemberKey, wire.ShareGroupTargetAssignmentMemberValue, _read_target),
    14: (wire.ShareGroupCurrentMemberAssignmentKey, wire.ShareGroupCurrentMemberAssignmentValue, _read_current),
    15: (wire.ShareGroupStatePartitionMetadataKey, wire.ShareGroupStatePartitionMetadataValue, _read_partitions),
}
