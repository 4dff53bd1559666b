"""DescribeCluster (key 60): v0-v2, flexible from v0."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, Struct, array, bool_, int8, int16, int32, string


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = bool_("0+")
    endpoint_type: int = int8("1+", 1)
    include_fenced_brokers: bool = bool_("2+")


class DescribeClusterBroker(Struct):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", None, nullable="0+")
    is_fenced: bool = bool_("2+")


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", None, nullable="0+")
    endpoint_type: int = int8("1+", 1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", -1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", -0x80000000)
