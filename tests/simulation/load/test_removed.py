"""What a log says of its keys."""

from __future__ import annotations

from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker
from tests.simulation.load.removed import last_records


def test_the_last_record_of_each_key_that_was_not_aborted() -> None:
    def batch(offset: int, value: bytes | None, producer_id: int = -1) -> bytes:
        is_transactional = producer_id >= 0
        return build_batch(
            [SimpleRecord(0, b"k", value)], base_offset=offset, producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1, base_sequence=0 if is_transactional else -1,
            is_transactional=is_transactional,
        )  # fmt: skip

    first, aborted = batch(0, b"0"), batch(1, None, 7)
    abort = end_txn_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=2
    )
    assert last_records(first) == {b"k": 0}
    assert last_records(first + aborted) == {b"k": None}
    assert last_records(first + aborted + abort) == {b"k": 0}
