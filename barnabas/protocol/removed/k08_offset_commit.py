"""OffsetCommit (key 8): v0-v1; v1 had a time for each offset."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Struct, array, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    commit_timestamp: int = int64("1", -1)
    committed_metadata: str | None = string("0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0+")
    topic_id: bytes = uuid("10+", ignorable=True)  # of no version here, but what answers errors reads it
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Request, key=8, versions="0-1"):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", -1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")
