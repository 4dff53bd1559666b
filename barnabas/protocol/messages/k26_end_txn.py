"""EndTxn (key 26): v0-v5, flexible from v3."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, bool_, int16, int32, int64, string


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    committed: bool = bool_("0+")


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("5+", -1, ignorable=True)
    producer_epoch: int = int16("5+", -1, ignorable=True)
