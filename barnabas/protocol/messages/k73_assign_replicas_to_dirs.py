"""AssignReplicasToDirs (key 73): v0, flexible from v0."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, Struct, array, int16, int32, int64, uuid


class RequestPartitionData(Struct):
    partition_index: int = int32("0+")


class RequestTopicData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class RequestDirectoryData(Struct):
    id: bytes = uuid("0+")
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)
    directories: list[RequestDirectoryData] = array(RequestDirectoryData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class ResponseTopicData(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class ResponseDirectoryData(Struct):
    id: bytes = uuid("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[ResponseDirectoryData] = array(ResponseDirectoryData, "0+")
