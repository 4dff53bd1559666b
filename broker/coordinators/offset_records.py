"""The records of __consumer_offsets: offsets and classic groups, built for writing, read when a shard is loaded.

Format (each key and value begins with an int16 version; `consumer_group_records.py` has those of consumer groups)
    key 0, 1  OffsetCommitKey    group, topic, partition  -> OffsetCommitValue v4, or v1 with a retention of its own
    key 2     GroupMetadataKey   group                    -> GroupMetadataValue v3
    value null: a tombstone

Source: Kafka's GroupCoordinatorRecordHelpers, GroupCoordinatorRecordSerde (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from barnabas.broker.coordinators import consumer_group_records
from barnabas.broker.coordinators.consumer_group_records import ConsumerGroupRecord
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.members import Member, without_replaced
from barnabas.broker.coordinators.offsets import NO_TIMESTAMP, CommittedOffset
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
TYPES_NOT_BUILT: Final = frozenset({*range(10, 16), *range(17, 24)})
"""The record types of share groups and of streams groups."""

KeyValue: TypeAlias = tuple[bytes, bytes | None]


class OffsetRecord(NamedTuple):
    """A committed position, or (None) that it was removed."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A group, or (None) that it was removed."""

    group_id: str
    group: Group | None


AnyRecord: TypeAlias = OffsetRecord | GroupRecord | ConsumerGroupRecord


def offset_commit(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> KeyValue:
    """Build the record of a position."""
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
    """Build the record that removes a position."""
    return _offset_key(group_id, topic, partition), None


def group_metadata(group: Group, assignments: Mapping[str, bytes]) -> KeyValue:
    """Build the record of a group as it is now, with the assignments of its members (none: without members)."""
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
    """The record type that a key begins with. Raises MalformedMessageError for a key too short to have one."""
    return read_prefix(key)


def read(key: bytes, value: bytes | None, record_offset: int) -> AnyRecord | None:
    """Read a record; None for one of a type that is not built, or unknown. Raises MalformedMessageError."""
    version = type_of(key)
    if version in OFFSET_COMMIT_KEY_VERSIONS:
        return _read_offset(key, value, record_offset)
    if version == GROUP_METADATA_KEY_VERSION:
        return _read_group(key, value)
    return consumer_group_records.read(version, key, value)


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_versioned(
        OffsetCommitKey(group=group_id, topic=topic, partition=partition), OFFSET_COMMIT_KEY_VERSION
    )


def _group_key(group_id: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), GROUP_METADATA_KEY_VERSION)


def _read_offset(key: bytes, value: bytes | None, record_offset: int) -> OffsetRecord:
    where = decode_versioned(OffsetCommitKey, key)
    if value is None:
        return OffsetRecord(where.group, where.topic, where.partition, None)
    what = decode_versioned(OffsetCommitValue, value)
    committed = CommittedOffset(
        what.offset, what.leader_epoch, what.metadata, what.commit_timestamp, what.expire_timestamp, what.topic_id,
        record_offset,
    )  # fmt: skip
    return OffsetRecord(where.group, where.topic, where.partition, committed)


def _read_group(key: bytes, value: bytes | None) -> GroupRecord:
    group_id = decode_versioned(GroupMetadataKey, key).group
    if value is None:
        return GroupRecord(group_id, None)
    what = decode_versioned(GroupMetadataValue, value)
    members = [
        Member(
            member.member_id, member.group_instance_id, member.client_id, member.client_host,
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            member.session_timeout, what.protocol_type, ((what.protocol or "", member.subscription),),
            member.assignment,
        )
        for member in what.members
    ]  # fmt: skip
    timestamp_ms = None if what.current_state_timestamp == NO_TIMESTAMP else what.current_state_timestamp
    group = Group.from_log(
        group_id, what.generation, what.protocol_type, what.protocol, what.leader, timestamp_ms,
        _distinct(group_id, members),
    )  # fmt: skip
    return GroupRecord(group_id, group)


def _distinct(group_id: str, members: Sequence[Member]) -> list[Member]:
    """The members, each once. Membership is not worth a shard: who is left out joins again."""
    kept = without_replaced(members)
    if len(kept) < len(members):
        log.warning(
            "The record of group %s names a member or an instance id twice: the last counts, %d are left out",
            group_id, len(members) - len(kept),
        )  # fmt: skip
    return kept


def _or_none_timestamp(timestamp_ms: int | None) -> int:
    return NO_TIMESTAMP if timestamp_ms is None else timestamp_ms
