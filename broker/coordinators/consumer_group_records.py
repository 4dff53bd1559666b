"""The records of __consumer_offsets that consumer groups (KIP-848) use: what they say, in bytes and back.

Format (each key begins with its record type, each value with its version, 0; value null: a tombstone)
    3   ConsumerGroupMetadata           group         the group's epoch
    4   ConsumerGroupPartitionMetadata  group         written by Kafka 4.0 only; read, and removed
    5   ConsumerGroupMemberMetadata     group, member
    6   ConsumerGroupTargetAssignmentMetadata  group  the assignment epoch
    7   ConsumerGroupTargetAssignmentMember    group, member
    8   ConsumerGroupCurrentMemberAssignment   group, member
    16  ConsumerGroupRegularExpression  group, expression
Types 10 to 15 are of share groups, 17 to 23 of streams groups: they are not read here and stay in the log.

Source: Kafka's GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from barnabas.broker.coordinators import consumer_group_types as t
from barnabas.broker.coordinators.consumer_group_types import Assignment, Member, MemberState, Owned, Record
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
    """A record and the group it is about."""

    group_id: str
    record: Record


def encode(group_id: str, record: Record) -> KeyValue:
    """Build the key and the value of a record."""
    key, value = WRITERS[type(record)](group_id, record)
    return encode_versioned(key), None if value is None else encode_versioned(value)


def read(record_type: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """Read a record of this type; None for one of another kind of group. Raises MalformedMessageError."""
    classes = CLASSES.get(record_type)
    if classes is None:
        return None
    key_class, value_class, reader = classes
    where: Any = decode_versioned(key_class, key)
    what: Any = None if value is None else decode_versioned(value_class, value)
    return ConsumerGroupRecord(where.group_id, reader(where, what))


# Writing


def _write_epoch(group_id: str, record: t.GroupEpoch) -> Pair:
    key = wire.ConsumerGroupMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ConsumerGroupMetadataValue(epoch=record.epoch, metadata_hash=record.metadata_hash)


def _write_partition_metadata(group_id: str, record: t.PartitionMetadata) -> Pair:
    assert not record.exists, "it is only removed"
    return wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None


def _write_member(group_id: str, record: t.MemberMetadata) -> Pair:
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


def _classic_to_wire(classic: t.ClassicPart) -> wire.ClassicMemberMetadata:
    return wire.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            wire.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ],
    )


def _write_current(group_id: str, record: t.CurrentAssignment) -> Pair:
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


def _write_target_epoch(group_id: str, record: t.TargetEpoch) -> Pair:
    key = wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    if record.epoch is None:
        return key, None
    return key, wire.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=record.epoch, assignment_timestamp=record.timestamp_ms
    )


def _write_target(group_id: str, record: t.TargetAssignment) -> Pair:
    key = wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=record.member_id)
    if record.assignment is None:
        return key, None
    return key, wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            wire.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in record.assignment.items()
        ]
    )


def _write_regex(group_id: str, record: t.RegexTopics) -> Pair:
    key = wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=record.regex)
    if record.resolved is None:
        return key, None
    topics, version, timestamp_ms = record.resolved
    return key, wire.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms)


WRITERS: Mapping[type[Any], Callable[[str, Any], Pair]] = {
    t.GroupEpoch: _write_epoch,
    t.PartitionMetadata: _write_partition_metadata,
    t.MemberMetadata: _write_member,
    t.CurrentAssignment: _write_current,
    t.TargetEpoch: _write_target_epoch,
    t.TargetAssignment: _write_target,
    t.RegexTopics: _write_regex,
}

# Reading


def _read_member(key: Any, value: Any) -> t.MemberMetadata:
    if value is None:
        return t.MemberMetadata(key.member_id, None)
    classic = value.classic_member_metadata
    has_classic = classic is not None and classic.supported_protocols  # an absent tag reads as an empty structure
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
        classic=_classic_from_wire(classic) if has_classic else None,
    )
    return t.MemberMetadata(key.member_id, member)


def _classic_from_wire(classic: wire.ClassicMemberMetadata) -> t.ClassicPart:
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols)
    return t.ClassicPart(classic.session_timeout_ms, protocols)


def _read_current(key: Any, value: Any) -> t.CurrentAssignment:
    if value is None:
        return t.CurrentAssignment(key.member_id, None)
    member = Member(
        member_id=key.member_id,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=_owned_from_wire(value.assigned_partitions, value.member_epoch),
        pending_revocation=_owned_from_wire(value.partitions_pending_revocation, value.member_epoch),
    )
    return t.CurrentAssignment(key.member_id, member)


def _owned_from_wire(topics: list[wire.TopicPartitions], member_epoch: int) -> Owned:
    """Before Kafka 4.3 nobody wrote since when: the member's epoch is the latest that it can be."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _read_target(key: Any, value: Any) -> t.TargetAssignment:
    assignment: Assignment | None = None
    if value is not None:
        assignment = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
    return t.TargetAssignment(key.member_id, assignment)


def _read_epoch(_key: Any, value: Any) -> t.GroupEpoch:
    return t.GroupEpoch(None) if value is None else t.GroupEpoch(value.epoch, value.metadata_hash)


def _read_target_epoch(_key: Any, value: Any) -> t.TargetEpoch:
    return t.TargetEpoch(None) if value is None else t.TargetEpoch(value.assignment_epoch, value.assignment_timestamp)


def _read_regex(key: Any, value: Any) -> t.RegexTopics:
    if value is None:
        return t.RegexTopics(key.regular_expression, None)
    resolved = t.ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    return t.RegexTopics(key.regular_expression, resolved)


CLASSES: Mapping[int, tuple[type[CoordinatorKey], type[CoordinatorValue], Callable[[Any, Any], Record]]] = {
    key.RECORD_TYPE: (key, value, reader)
    for key, value, reader in (
        (wire.ConsumerGroupMetadataKey, wire.ConsumerGroupMetadataValue, _read_epoch),
        (
            wire.ConsumerGroupPartitionMetadataKey, wire.ConsumerGroupPartitionMetadataValue,
            lambda _key, value: t.PartitionMetadata(value is not None),
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
