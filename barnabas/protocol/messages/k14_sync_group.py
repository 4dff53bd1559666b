"""SyncGroup (key 14): v0-v5, flexible from v4."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, Struct, array, bytes_, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = bytes_("0+")


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", None, nullable="3+")
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", None, nullable="5+", ignorable=True)
    protocol_name: str | None = string("5+", None, nullable="5+", ignorable=True)
    assignment: bytes = bytes_("0+")
