"""What a consumer delivers of a response, and what a broker must not send."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.k01_fetch import AbortedTransaction, PartitionData
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker
from tests.simulation.load.clients.fetching import READ_COMMITTED, READ_UNCOMMITTED, Fetched, delivered
from tests.simulation.load.clients.readers import Reader


def batch(offset: int, *values: bytes, producer_id: int = -1) -> bytes:
    """A batch, in a transaction if it has a producer."""
    return build_batch(
        [SimpleRecord(0, None, value) for value in values], base_offset=offset, producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1, base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )  # fmt: skip


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    """The end of a transaction."""
    return end_txn_marker(
        kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
    )


def response(data: bytes, end: int, *aborted: tuple[int, int], stable: int | None = None) -> PartitionData:
    """A partition's part of a response: up to `end`, with (producer id, first offset) of aborted transactions."""
    return PartitionData(
        partition_index=0, error_code=0, high_watermark=end, last_stable_offset=end if stable is None else stable,
        aborted_transactions=[AbortedTransaction(producer_id=it, first_offset=offset) for it, offset in aborted],
        records=data,
    )  # fmt: skip


LOG = b"".join(
    (
        batch(0, b"a"),
        batch(1, b"x", producer_id=7),
        batch(2, b"y", producer_id=8),
        marker(3, 7, ControlType.ABORT),
        batch(4, b"z", producer_id=7),
        marker(5, 8, ControlType.COMMIT),
        marker(6, 7, ControlType.COMMIT),
    )
)


def test_a_committed_reader_drops_what_was_aborted() -> None:
    fetched = delivered(response(LOG, 7, (7, 1)), 0, READ_COMMITTED)
    assert [(got.offset, got.value) for got in fetched.records] == [(0, b"a"), (2, b"y"), (4, b"z")]
    assert (fetched.next_offset, fetched.problems) == (7, [])


def test_an_uncommitted_reader_gets_everything_but_markers() -> None:
    fetched = delivered(response(LOG, 7), 1, READ_UNCOMMITTED)
    assert [got.value for got in fetched.records] == [b"x", b"y", b"z"]


def test_records_below_the_asked_offset_are_left_out() -> None:
    fetched = delivered(response(batch(0, b"a", b"b", b"c"), 3), 1, READ_UNCOMMITTED)
    assert [got.offset for got in fetched.records] == [1, 2]


def test_nothing_above_the_last_stable_offset_may_be_sent() -> None:
    fetched = delivered(response(LOG, 7, stable=5), 0, READ_COMMITTED)
    assert len(fetched.problems) == 2
    assert delivered(response(LOG, 7, stable=5), 0, READ_UNCOMMITTED).problems == []


def test_nothing_above_the_high_watermark_may_be_sent() -> None:
    assert delivered(response(LOG, 6), 0, READ_UNCOMMITTED).problems != []


def test_the_last_stable_offset_is_not_above_the_high_watermark() -> None:
    assert delivered(response(b"", 3, stable=4), 3, READ_UNCOMMITTED).problems != []


class ScriptedReader(Reader):
    """A reader of a partition whose new leader knows a high watermark of 3 at first, and of 5 later."""

    def __init__(self, isolation: int) -> None:
        self.got: list[bytes | None] = []
        super().__init__("reader", [], "t", 1, lambda _reader, _partition, got: self.got.append(got.value), isolation)
        self._stable = iter((3, 3, 4, 5))
        self._ends = iter((None, 5))

    def end_of(self, _topic: str, _partition: int) -> int | None:
        """OFFSET_NOT_AVAILABLE at first."""
        return next(self._ends)

    def fetch(
        self, _topic: str, _partition: int, offset: int, isolation: int = READ_UNCOMMITTED, *, is_trimmed: bool = False
    ) -> Fetched | None:
        """One more record each time, up to what the leader knows."""
        del is_trimmed
        end = next(self._stable)
        data = batch(offset, b"%d" % offset) if offset < end else b""
        return delivered(response(data, end), offset, isolation)


@pytest.mark.parametrize("isolation", [READ_UNCOMMITTED, READ_COMMITTED])
def test_the_end_is_not_what_a_new_leader_knows_at_first(isolation: int) -> None:
    reader = ScriptedReader(isolation)
    reader.positions = [2]
    reader.read_to_end()
    assert reader.got == [b"2", b"3", b"4"]
