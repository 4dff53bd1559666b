"""Encodes and decodes the records of offsets and classic groups in __consumer_offsets.

Format (each key and value starts with an int16 version; the `records.py` of other groups have more)
    key 0, 1  OffsetCommitKey    group, topic, partition  -> OffsetCommitValue v4, or v1 with a retention of its own
    key 2     GroupMetadataKey   group                    -> GroupMetadataValue v3
    value null: a tombstone

Source: Kafka's GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.members import Member, without_replaced
from barnabas.broker.coordinators.consumer import records as consumer_records
from barnabas.broker.coordinators.consumer.records import ConsumerGroupRecord
from barnabas.broker.coordinators.offsets.store import NO_TIMESTAMP, CommittedOffset
from barnabas.broker.coordinators.share_groups import records as share_records
from barnabas.broker.coordinators.share_groups.records import ShareGroupRecord
from barnabas.broker.coordinators.streams_groups import records as streams_records
from barnabas.broker.coordinators.streams_groups.records import StreamsGroupRecord
from barnabas.protocol.coordinator_records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.protocol.coordinator_records.record import decode_versioned, encode_versioned, read_prefix

log = logging.getLogger("barnabas.group")

OFFSET_COMMIT_KEY_VERSION = 1
OFFSET_COMMIT_VALUE_VERSION = 4
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY = 1
GROUP_METADATA_KEY_VERSION = 2
GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_KEY_VERSIONS = frozenset({0, 1})
#: A record type of early versions of streams groups.
TYPES_NOT_IMPLEMENTED: Final = frozenset({18})

KeyValue: TypeAlias = tuple[bytes, bytes | None]


class OffsetRecord(NamedTuple):
    """A committed offset, or its removal (None)."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A classic group, or its removal (None)."""

    group_id: str
    group: Group | None


AnyRecord: TypeAlias = OffsetRecord | GroupRecord | ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord


def offset_commit(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> KeyValue:
    """Build the record of an offset."""
    has_expiry = committed.expire_timestamp_ms != NO_TIMESTAMP
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_COMMIT_VALUE_VERSION
    return _offset_key(group_id, topic, partition), encode_versioned(value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> KeyValue:
    """Build the record that removes an offset."""
    return _offset_key(group_id, topic, partition), None


def group_metadata(group: Group, assignments: Mapping[str, bytes]) -> KeyValue:
    """Build the record of a group with these assignments; members without an assignment are left out."""
    members = [
        MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=assignments[member.member_id],
        )
        for member in group.members.by_id.values()
        if member.member_id in assignments
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.members.leader_id,
        current_state_timestamp=_or_none_timestamp(group.state_timestamp_ms),
        members=members,
    )
    return _group_key(group.group_id), encode_versioned(value, GROUP_METADATA_VALUE_VERSION)


def new_group(group_id: str, now_ms: int) -> KeyValue:
    """Build the first record of a group, before its first generation."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now_ms, members=[]
    )
    return _group_key(group_id), encode_versioned(value, GROUP_METADATA_VALUE_VERSION)


def group_tombstone(group_id: str) -> KeyValue:
    """Build the record that removes a group."""
    return _group_key(group_id), None


def type_of(key: bytes) -> int:
    """Return the record type of a key. Raises MalformedMessageError for a key that is too short."""
    return read_prefix(key)


def read(key: bytes, value: bytes | None, record_offset: int) -> AnyRecord | None:
    """Decode a record; None for a type that is unknown or not implemented. Raises MalformedMessageError."""
    version = type_of(key)
    if version in OFFSET_COMMIT_KEY_VERSIONS:
        return _read_offset(key, value, record_offset)
    if version == GROUP_METADATA_KEY_VERSION:
        return _read_group(key, value)
    return (
        consumer_records.read(version, key, value)
        or share_records.read(version, key, value)
        or streams_records.read(version, key, value)
    )


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_versioned(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition), OFFSET_COMMIT_KEY_VERSION
    )


def _group_key(group_id: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY_VERSION)


def _read_offset(key: bytes, value: bytes | None, record_offset: int) -> OffsetRecord:
    parsed_key = decode_versioned(OffsetCommitKey, key)
    if value is None:
        return OffsetRecord(parsed_key.group, parsed_key.topic, parsed_key.partition, None)
    parsed = decode_versioned(OffsetCommitValue, value)
    committed = CommittedOffset(
        parsed.offset, parsed.leader_epoch, parsed.metadata, parsed.commit_timestamp, parsed.expire_timestamp,
        parsed.topic_id, record_offset,
    )  # fmt: skip
    return OffsetRecord(parsed_key.group, parsed_key.topic, parsed_key.partition, committed)


def _read_group(key: bytes, value: bytes | None) -> GroupRecord:
    group_id = decode_versioned(GroupMetadataKey, key).group
    if value is None:
        return GroupRecord(group_id, None)
    parsed = decode_versioned(GroupMetadataValue, value)
    members = [
        Member(
            member.member_id, member.group_instance_id, member.client_id, member.client_host,
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            member.session_timeout, parsed.protocol_type, ((parsed.protocol or "", member.subscription),),
            member.assignment,
        )
        for member in parsed.members
    ]  # fmt: skip
    timestamp_ms = None if parsed.current_state_timestamp == NO_TIMESTAMP else parsed.current_state_timestamp
    group = Group.from_log(
        group_id, parsed.generation, parsed.protocol_type, parsed.protocol, parsed.leader, timestamp_ms,
        _distinct(group_id, members),
    )  # fmt: skip
    return GroupRecord(group_id, group)


def _distinct(group_id: str, members: Sequence[Member]) -> list[Member]:
    """Return the members with distinct ids. Why not an error: a member that is left out joins again."""
    kept = without_replaced(members)
    if len(kept) < len(members):
        log.warning(
            "The record of group %s has duplicate member or instance ids: the last counts, %d are left out",
            group_id, len(members) - len(kept),
        )  # fmt: skip
    return kept


def _or_none_timestamp(timestamp_ms: int | None) -> int:
    return NO_TIMESTAMP if timestamp_ms is None else timestamp_ms
