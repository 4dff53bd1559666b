"""Compacting a log: what stays, what goes, byte for byte where nothing goes."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.batch import (
    BatchHeader,
    iter_headers,
)
from barnabas.protocol.records.compression import CompressionType
from broker.storage.log import Log
from tests.support.compaction import append_keyed, compact, keyed_contents, segment_bytes
from tests.support.storage_bench import Bench

SETTINGS = {"compact": True, "delete": False, "index_interval_bytes": 100}
DAY_MS = 86_400_000


def headers_of(target: Log) -> list[BatchHeader]:
    return [header for data in segment_bytes(target) for _, header in iter_headers(data)]


def test_the_latest_record_of_each_key_stays(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"), ("b", "1"), ("a", "2"))
    append_keyed(target, bench, ("c", "1"), ("b", "2"))
    target.roll()
    append_keyed(target, bench, ("a", "3"))  # the active segment is left alone
    assert compact(target, bench) == 5
    assert keyed_contents(target) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "a", "3")]
    target.roll()
    assert compact(target, bench, first_dirty=5) == 6
    assert keyed_contents(target) == [(3, "c", "1"), (4, "b", "2"), (5, "a", "3")]
    target.invariants()


def test_a_batch_that_loses_nothing_is_copied_as_it_is(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"), ("b", "1"), compression=CompressionType.ZSTD)
    append_keyed(target, bench, ("a", "2"), ("c", "1"))
    append_keyed(target, bench, ("d", "1"), ("e", "1"), compression=CompressionType.LZ4)
    before = segment_bytes(target)[0]
    target.roll()
    compact(target, bench)
    after = segment_bytes(target)[0]
    second = len(before) - next(header.size_in_bytes for _, header in iter_headers(before))
    assert after.endswith(before[-second:])
    first = headers_of(target)[0]
    assert (first.record_count, first.last_offset, first.compression_type) == (1, 1, CompressionType.ZSTD)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_every_compression(bench: Bench, kind: CompressionType) -> None:
    target = bench.open(**SETTINGS)
    for number in range(20):
        append_keyed(target, bench, *((f"k{n}", f"v{number}-{n}" * 9) for n in range(number % 7, 9)), compression=kind)
    expected = {key: (offset, value) for offset, key, value in keyed_contents(target)}
    target.roll()
    compact(target, bench)
    assert keyed_contents(target) == sorted((offset, key, value) for key, (offset, value) in expected.items())
    assert {header.compression_type for header in headers_of(target)} == {kind}
