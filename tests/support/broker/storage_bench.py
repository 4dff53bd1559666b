"""Shared by the storage tests: settings, a disk in memory, logs on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.broker.storage.large_batches import ORDINARY_BYTES
from barnabas.broker.storage.log.log import FetchIsolation, Log
from barnabas.broker.storage.log.recovery import LogLoader
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import SimpleRecord, build_batch, iter_headers, iter_records, verify_crc

LONG_MAX = 2**63 - 1
TP = TopicPartition("flights", 0)


@dataclass(frozen=True)
class Settings:
    """A topic's settings as storage reads them: Kafka's defaults, but small indexes."""

    segment_bytes: int = 1024**3
    max_segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 7 * 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1024 * 1024 + 12
    compact: bool = False
    delete: bool = True
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 86_400_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600_000


class Bench:
    """A disk, a clock and a scheduler, and the logs that use them."""

    def __init__(self, fs: FileSystem | None = None, directory: str = "/data/flights-0") -> None:
        self.fs: FileSystem = fs if fs is not None else MemoryFileSystem()
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.directory = directory
        self.fs.mkdir(directory)

    def open(
        self,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
        may_have_holes: bool = False,
        full: bool = True,
        decompressed_max: int = ORDINARY_BYTES,
        **settings: Any,
    ) -> Log:
        """Open the log, by default as after a crash."""
        config = self.settings(**settings)
        loaded = LogLoader(
            self.fs,
            self.directory,
            TP,
            config,
            self.clock,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean,
            may_have_holes=may_have_holes,
            producer_id_expiration_ms=86_400_000,
        ).load()
        return Log(
            self.fs,
            self.directory,
            TP,
            config,
            self.clock,
            self.scheduler,
            loaded,
            full_validation=full,
            decompressed_max=decompressed_max,
        )

    def settings(self, **settings: Any) -> Settings:
        """Return a topic's settings."""
        return Settings(**settings)

    def batch(self, *values: str, **options: Any) -> memoryview:
        """Build a writable batch of records with these values and the present time."""
        key = options.pop("key", b"k")
        timestamp = options.pop("timestamp", self.clock.wall_ms())
        records = [SimpleRecord(timestamp, key, value.encode()) for value in values]
        return memoryview(bytearray(build_batch(records, **options)))

    def append(self, target: Log, *values: str, leader_epoch: int = 0, **options: Any) -> int:
        """Append records like a client, commit them, and return the first offset."""
        info = target.append_as_leader(self.batch(*values, **options), leader_epoch=leader_epoch)
        target.update_high_watermark(target.log_end_offset)
        return info.first_offset


def contents(
    target: Log, start: int | None = None, isolation: FetchIsolation = FetchIsolation.LOG_END
) -> list[tuple[int, str]]:
    """Read (offset, value) of every data record, fetch by fetch, like a consumer."""
    offset = target.log_start_offset if start is None else start
    found: list[tuple[int, str]] = []
    while True:
        data = target.read(offset, 700, isolation=isolation, min_one_message=True)
        if data.slice is None:
            return found
        raw = data.slice.read()
        assert len(raw) == data.size
        before = offset
        for position, header in iter_headers(raw):
            if not header.is_control:
                records = [(record.offset, (record.value or b"").decode()) for record in iter_records(raw, position)]
                found += [record for record in records if record[0] >= offset]
            offset = header.next_offset
        assert offset > before, "a read made no progress"


def consumed(target: Log, isolation: FetchIsolation, start: int | None = None) -> Iterator[tuple[int, str]]:
    """Read from the log's start, or from `start`, like a consumer that checks CRCs and skips aborted records.

    Raises MalformedMessageError, or ApiError, where such a consumer would fail.
    """
    first = offset = target.log_start_offset if start is None else start
    while True:
        data = target.read(offset, 200, isolation=isolation, min_one_message=True)
        if data.slice is None:
            return
        raw = data.slice.read()
        ahead = sorted(data.aborted_transactions or [], key=lambda each: each.first_offset)
        aborted: set[int] = set()
        before = offset
        for position, header in iter_headers(raw):
            verify_crc(raw, position, header)
            while ahead and ahead[0].first_offset <= header.last_offset:
                aborted.add(ahead.pop(0).producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                for record in iter_records(raw, position):
                    if record.offset >= first:
                        yield record.offset, (record.value or b"").decode()
            offset = header.next_offset
        if offset <= before:
            raise MalformedMessageError(f"no whole batch at offset {offset}")
