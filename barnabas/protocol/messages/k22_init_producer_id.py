"""InitProducerId (key 22): v0-v6, flexible from v2."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, bool_, int16, int32, int64, string


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+"):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", -1)
    producer_epoch: int = int16("3+", -1)
    enable2_pc: bool = bool_("6+")
    keep_prepared_txn: bool = bool_("6+")


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    producer_id: int = int64("0+", -1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", -1)
    ongoing_txn_producer_epoch: int = int16("6+", -1)
