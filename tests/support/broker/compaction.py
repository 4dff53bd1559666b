"""Shared by the cleaner's tests: appends with keys, one cleaning on demand, the content of a log by key."""

from __future__ import annotations

from typing import Any

from barnabas.broker.storage.cleaner.cleaner import Cleaner, CleanerStats, MayForget, always
from barnabas.broker.storage.cleaner.cleaner_manager import cleanable_offsets, log_to_clean
from barnabas.broker.storage.cleaner.offset_map import OffsetMap
from barnabas.broker.storage.cleaner.throttler import Throttler
from barnabas.broker.storage.cleaner.yielding import Yielding, no_traffic
from barnabas.broker.storage.log.log import Log
from barnabas.protocol.records.batch import SimpleRecord, build_batch, iter_headers, iter_records
from tests.support.broker.storage_bench import Bench

NO_LIMIT = 1e300
MAP_BYTES = 1 << 20


def append_keyed(
    target: Log, bench: Bench, *pairs: tuple[str | None, str | None], commit: bool = True, **options: Any
) -> int:
    """Append one batch of (key, value) pairs (None: null); return its first offset."""
    timestamp = options.pop("timestamp", bench.clock.wall_ms())
    leader_epoch = options.pop("epoch", 0)
    records = [
        SimpleRecord(timestamp, None if key is None else key.encode(), None if value is None else value.encode())
        for key, value in pairs
    ]
    info = target.append_as_leader(memoryview(bytearray(build_batch(records, **options))), leader_epoch=leader_epoch)
    if commit:
        target.update_high_watermark(target.log_end_offset)
    return info.first_offset


def cleaner(
    bench: Bench, map_bytes: int = MAP_BYTES, throttler: Throttler | None = None, may_forget: MayForget = always
) -> Cleaner:
    throttler = throttler or Throttler(NO_LIMIT, bench.clock)
    yielding = Yielding(no_traffic, bench.clock)
    return Cleaner(bench.fs, bench.clock, OffsetMap(map_bytes, 0.9), 1 << 16, throttler, yielding, may_forget)


def compact(target: Log, bench: Bench, first_dirty: int | None = None, **options: Any) -> int:
    """Clean the log once; return the offset up to which it is clean."""
    return compact_with_stats(target, bench, first_dirty, **options)[0]


def compact_with_stats(
    target: Log, bench: Bench, first_dirty: int | None = None, **options: Any
) -> tuple[int, CleanerStats]:
    dirty, uncleanable = cleanable_offsets(target, first_dirty, bench.clock.wall_ms())
    check = options.pop("check", lambda _wait_ms: None)
    return cleaner(bench, **options).clean(log_to_clean(target, dirty, uncleanable), check)


def segment_bytes(target: Log) -> list[bytes]:
    """The content of the `.log` files up to their segments' sizes."""
    return [segment.file.pread(segment.size, 0) for segment in target.segments]


def keyed_contents(target: Log) -> list[tuple[int, str | None, str | None]]:
    """(offset, key, value) of every data record in the segments, in order."""
    return [
        (
            record.offset,
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
        )
        for data in segment_bytes(target)
        for position, header in iter_headers(data)
        if not header.is_control
        for record in iter_records(data, position)
    ]
