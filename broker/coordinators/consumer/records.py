"""Encodes and decodes the records of consumer groups (KIP-848) in __consumer_offsets.

Format (each key begins with its record type, each value with its version, 0; value null: a tombstone)
    3   ConsumerGroupMetadata           group         the group's epoch
    4   ConsumerGroupPartitionMetadata  group         written by Kafka 4.0 only; read, then removed
    5   ConsumerGroupMemberMetadata     group, member
    6   ConsumerGroupTargetAssignmentMetadata  group  the assignment epoch
    7   ConsumerGroupTargetAssignmentMember    group, member
    8   ConsumerGroupCurrentMemberAssignment   group, member
    16  ConsumerGroupRegularExpression  group, expression
Types 10 to 15 belong to share groups (`share_groups/records.py`), 17 to 23 to streams groups
(`streams_groups/records.py`).

Source: Kafka's GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.coordinators.consumer import values as v
from barnabas.broker.coordinators.consumer.values import Assignment, Member, MemberState, Owned, Record
from barnabas.protocol.coordinator_records import consumer_groups as wire
from barnabas.protocol.coordinator_records.record import (
    CoordinatorKey,
    CoordinatorValue,
    decode_versioned,
    encode_versioned,
)

KeyValue: TypeAlias = tuple[bytes, bytes | None]
Pair: TypeAlias = tuple[CoordinatorKey, CoordinatorValue | None]


class ConsumerGroupRecord(NamedTuple):
    """A record and its group."""

    group_id: str
    record: Record


def encode(group_id: str, record: Record) -> KeyValue:
    """Build the key and the value of a record."""
    key, value = WRITERS[type(record)](group_id, record)
    return encode_versioned(key), None if value is None else encode_versioned(value)


def read(record_type: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """Decode a record of this type; None if it is not a consumer group's. Raises MalformedMessageError."""
    classes = CLASSES.get(record_type)
    if classes is None:
        return None
    key_class, value_class, reader = classes
    parsed_key: Any = decode_versioned(key_class, key)
    parsed_value: Any = None if value is None else decode_versioned(value_class, value)
    return ConsumerGroupRecord(parsed_key.group_id, reader(parsed_key, parsed_value))


# Writing


def _write_epoch(group_id: str, record: v.GroupEpoch) -> Pair:
    key = wire.ConsumerGroupMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)


def _write_partition_metadata(group_id: str, record: v.PartitionMetadata) -> Pair:
    assert not record.exists, "this record is only removed"
    return wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None


def _write_member(group_id: str, record: v.MemberMetadata) -> Pair:
    key = wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=record.member_id)
    member = record.member
    if member is None:
        return key, None
    value = wire.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None if member.classic is None else _classic_to_wire(member.classic),
    )
    return key, value


def _classic_to_wire(classic: v.ClassicPart) -> wire.ClassicMemberMetadata:
    return wire.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            wire.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ],
    )


def _write_current(group_id: str, record: v.CurrentAssignment) -> Pair:
    key = wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=record.member_id)
    member = record.member
    if member is None:
        return key, None
    return key, wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_owned_to_wire(member.assigned),
        partitions_pending_revocation=_owned_to_wire(member.pending_revocation),
    )


def _owned_to_wire(owned: Owned) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(
            topic_id=topic_id, partitions=list(partitions), assignment_epochs=list(partitions.values())
        )
        for topic_id, partitions in owned.items()
    ]


def _write_target_epoch(group_id: str, record: v.TargetEpoch) -> Pair:
    key = wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.timestamp_ms
    )


def _write_target(group_id: str, record: v.TargetAssignment) -> Pair:
    key = wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
    if record.assignment is None:
        return key, None
    return key, wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            wire.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in record.assignment.items()
        ]
    )


def _write_regex(group_id: str, record: v.RegexTopics) -> Pair:
    key = wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=record.regex)
    if record.resolved is None:
        return key, None
    topics, version, timestamp_ms = record.resolved
    return key, wire.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms)


WRITERS: Mapping[type[Any], Callable[[str, Any], Pair]] = {
    v.GroupEpoch: _write_epoch,
    v.PartitionMetadata: _write_partition_metadata,
    v.MemberMetadata: _write_member,
    v.CurrentAssignment: _write_current,
    v.TargetEpoch: _write_target_epoch,
    v.TargetAssignment: _write_target,
    v.RegexTopics: _write_regex,
}

# Reading


def _read_member(
    key: wire.ConsumerGroupMemberMetadataKey, value: wire.ConsumerGroupMemberMetadataValue | None
) -> v.MemberMetadata:
    if value is None:
        return v.MemberMetadata(key.member_id, None)
    classic = value.classic_member_metadata
    member = Member(
        member_id=key.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        server_assignor=value.server_assignor,
        classic=_classic_from_wire(classic),
    )
    return v.MemberMetadata(key.member_id, member)


def _classic_from_wire(classic: wire.ClassicMemberMetadata | None) -> v.ClassicPart | None:
    if classic is None or not classic.supported_protocols:  # an absent tag is decoded as an empty structure
        return None
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols)
    return v.ClassicPart(classic.session_timeout_ms, protocols)


def _read_current(
    key: wire.ConsumerGroupCurrentMemberAssignmentKey, value: wire.ConsumerGroupCurrentMemberAssignmentValue | None
) -> v.CurrentAssignment:
    if value is None:
        return v.CurrentAssignment(key.member_id, None)
    member = Member(
        member_id=key.member_id,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_owned_from_wire(value.assigned_partitions, value.member_epoch),
        pending_revocation=_owned_from_wire(value.partitions_pending_revocation, value.member_epoch),
    )
    return v.CurrentAssignment(key.member_id, member)


def _owned_from_wire(topics: list[wire.TopicPartitions], member_epoch: int) -> Owned:
    """Decode partitions; before Kafka 4.3 no epochs were written, and the member's epoch is the latest possible."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _read_target(
    key: wire.ConsumerGroupTargetAssignmentMemberKey, value: wire.ConsumerGroupTargetAssignmentMemberValue | None
) -> v.TargetAssignment:
    assignment: Assignment | None = None
    if value is not None:
        assignment = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
    return v.TargetAssignment(key.member_id, assignment)


def _read_epoch(_key: wire.ConsumerGroupMetadataKey, value: wire.ConsumerGroupMetadataValue | None) -> v.GroupEpoch:
    return v.GroupEpoch(None) if value is None else v.GroupEpoch(value.epoch, value.metadata_hash)


def _read_target_epoch(
    _key: wire.ConsumerGroupTargetAssignmentMetadataKey, value: wire.ConsumerGroupTargetAssignmentMetadataValue | None
) -> v.TargetEpoch:
    return v.TargetEpoch(None) if value is None else v.TargetEpoch(value.assignment_epoch, value.assignment_timestamp)


def _read_regex(
    key: wire.ConsumerGroupRegularExpressionKey, value: wire.ConsumerGroupRegularExpressionValue | None
) -> v.RegexTopics:
    if value is None:
        return v.RegexTopics(key.regular_expression, None)
    resolved = v.ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    return v.RegexTopics(key.regular_expression, resolved)


CLASSES: Mapping[int, tuple[type[CoordinatorKey], type[CoordinatorValue], Callable[[Any, Any], Record]]] = {
    key.RECORD_TYPE: (key, value, reader)
    for key, value, reader in (
        (wire.ConsumerGroupMetadataKey, wire.ConsumerGroupMetadataValue, _read_epoch),
        (
            wire.ConsumerGroupPartitionMetadataKey, wire.ConsumerGroupPartitionMetadataValue,
            lambda _key, value: v.PartitionMetadata(value is not None),
        ),
        (wire.ConsumerGroupMemberMetadataKey, wire.ConsumerGroupMemberMetadataValue, _read_member),
        (
            wire.ConsumerGroupTargetAssignmentMetadataKey, wire.ConsumerGroupTargetAssignmentMetadataValue,
            _read_target_epoch,
        ),
        (wire.ConsumerGroupTargetAssignmentMemberKey, wire.ConsumerGroupTargetAssignmentMemberValue, _read_target),
        (wire.ConsumerGroupCurrentMemberAssignmentKey, wire.ConsumerGroupCurrentMemberAssignmentValue, _read_current),
        (wire.ConsumerGroupRegularExpressionKey, wire.ConsumerGroupRegularExpressionValue, _read_regex),
    )
}  # fmt: skip
