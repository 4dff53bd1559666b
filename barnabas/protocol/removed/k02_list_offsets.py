"""ListOffsets (key 2): v0, which asked for several offsets at once."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0")
    timestamp: int = int64("0")
    max_num_offsets: int = int32("0", 1)


class ListOffsetsTopic(Struct):
    name: str = string("0")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0")


class ListOffsetsRequest(Request, key=2, versions="0-0"):
    replica_id: int = int32("0")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0")


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0")
    error_code: int = int16("0")
    old_style_offsets: list[int] = array(int64, "0")


class ListOffsetsTopicResponse(Struct):
    name: str = string("0")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0")


class ListOffsetsResponse(Response, key=2, versions="0-0"):
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0")
