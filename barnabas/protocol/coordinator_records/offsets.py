"""`__consumer_offsets`: committed offsets, and groups of the classic protocol."""

from __future__ import annotations

from barnabas.protocol.coordinator_records.record import CoordinatorKey, CoordinatorValue
from barnabas.protocol.schema import Struct, array, bytes_, int32, int64, string, uuid


class LegacyOffsetCommitKey(CoordinatorKey, record_type=0, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(CoordinatorValue, record_type=0, versions="0"):
    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class OffsetCommitKey(CoordinatorKey, record_type=1, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(CoordinatorValue, record_type=1, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", -1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", -1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, tagged="4+", ignorable=True)


class GroupMetadataKey(CoordinatorKey, record_type=2, versions="0"):
    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", None, nullable="3+", ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", -1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = bytes_("0+")
    assignment: bytes = bytes_("0+")


class GroupMetadataValue(CoordinatorValue, record_type=2, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", -1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")
