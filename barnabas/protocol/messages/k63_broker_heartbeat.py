"""BrokerHeartbeat (key 63): v0-v2, flexible from v0."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, array, bool_, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", -1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = bool_("0+")
    want_shut_down: bool = bool_("0+")
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0, tagged="1+")
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", None, nullable="2+", tag=1, tagged="2+")


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = bool_("0+")
    is_fenced: bool = bool_("0+", True)
    should_shut_down: bool = bool_("0+")
