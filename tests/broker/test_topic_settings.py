"""Every topic key: what changes at run time when it is set on a topic whose log is in use.

`TABLE` has a row for each key that Kafka has (a test compares), with what proves it: a function here, or the reason why
there is nothing to prove. Each function is given a room with a broker that leads partition 0 of topic `t`, sets the
key as the controller's push does after an IncrementalAlterConfigs, and looks at what the broker then does.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.dynamic_config import ResourceType
from barnabas.broker.storage.log import FetchIsolation, Log
from barnabas.broker.storage.log_cleaner import LogCleaner
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.errors import ConfigError
from barnabas.config.keys import TOPIC_KEYS
from barnabas.config.topic import check_topic
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import Record, SimpleRecord, TimestampType, build_batch, iter_headers, iter_records
from barnabas.protocol.records.compression import CompressionType
from tests.support.broker_room import BrokerRoom, produce, state

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "configs.tsv"
TP = TopicPartition("t", 0)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Room(BrokerRoom):
    """A broker that leads one partition, in small segments where a test wants several."""

    def __init__(self) -> None:
        super().__init__(internal_segment_bytes="1000000")
        self.push({"t": [state(1, (1, 2), isr=(1,), is_new=True)]})
        self.cleaner = LogCleaner(self.config, self.log_manager, self.clock, self.fs, self.registry)

    @property
    def log(self) -> Log:
        found = self.log_manager.get_log(TP)
        assert found is not None
        return found

    def set(self, name: str, value: str | None) -> None:
        """What reaches the broker after IncrementalAlterConfigs."""
        if value is not None:
            TOPIC_KEYS[name].parse(value)
        record = SimpleNamespace(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value)
        self.dynamic_config.apply_records([record], is_full=False)

    def write(
        self, value: bytes | None = b"v", key: bytes | None = b"k", *, count: int = 1, acks: int = 1, **options: Any
    ) -> ErrorCode:
        timestamp = options.pop("timestamp", self.clock.wall_ms())
        records = build_batch([SimpleRecord(timestamp, key, value)] * count, **options)
        response = self.answer(produce(records, acks=acks), 9)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def raw(self) -> bytes:
        """All that is stored."""
        stored, offset = b"", self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read(offset, 1 << 26, isolation=FetchIsolation.LOG_END, min_one_message=True)
            assert data.slice is not None
            stored += data.slice.read()
            offset = list(iter_headers(stored))[-1][1].next_offset
        return stored

    def records(self) -> list[Record]:
        raw = self.raw()
        return [record for position, _ in iter_headers(raw) for record in iter_records(raw, position)]

    def size_of(self, **options: Any) -> int:
        """Write a batch of many alike records and return how many bytes it became."""
        before = self.log.size_in_bytes
        text = "".join(f"{number * number} " for number in range(3000)).encode()
        assert self.write(text, **options) is ErrorCode.NONE
        return self.log.size_in_bytes - before

    def files(self, ending: str) -> list[str]:
        return [entry.name for entry in self.fs.listdir(self.log.directory) if entry.name.endswith(ending)]

    def clean(self) -> bool:
        """Whether the cleaner finds the log dirty enough; cleans it if so."""
        self.log.roll()
        self.log.update_high_watermark(self.log.log_end_offset)
        return self.cleaner.clean_filthiest(lambda _count: None) is not None


# A proof for each key


def cleanup_policy(room: Room) -> None:
    room.set("cleanup.policy", "compact")
    assert room.write(key=None) is ErrorCode.INVALID_RECORD
    room.set("cleanup.policy", "delete")
    assert room.write(key=None) is ErrorCode.NONE
    room.set("cleanup.policy", "compact")
    for _ in range(3):
        room.write(key=b"same")
    assert room.clean()


def compression_type(room: Room) -> None:
    for wanted, kind in (("gzip", CompressionType.GZIP), ("zstd", CompressionType.ZSTD)):
        room.set("compression.type", wanted)
        room.write(compression=CompressionType.LZ4)
        assert list(iter_headers(room.raw()))[-1][1].compression_type is kind
    room.set("compression.type", "uncompressed")
    room.write(compression=CompressionType.LZ4)
    room.set("compression.type", None)
    room.write(compression=CompressionType.LZ4)
    kinds = [header.compression_type for _, header in iter_headers(room.raw())]
    assert kinds[-2:] == [CompressionType.NONE, CompressionType.LZ4]


def level(codec: str, low: str, high: str) -> Callable[[Room], None]:
    def prove(room: Room) -> None:
        room.set("compression.type", codec)
        room.set(f"compression.{codec}.level", low)
        large = room.size_of()
        room.set(f"compression.{codec}.level", high)
        assert room.size_of() < large

    return prove


def delete_retention_ms(room: Room) -> None:
    room.set("cleanup.policy", "compact")
    room.set("delete.retention.ms", str(HOUR_MS))

    room.set("min.cleanable.dirty.ratio", "0.01")

    def tombstones() -> int:
        return [record.value for record in room.records()].count(None)

    room.write(None, key=b"gone")
    room.write(key=b"other")
    assert room.clean()
    assert tombstones() == 1
    room.clock.advance_ms(HOUR_MS + 1)
    room.write(key=b"other")
    assert room.clean()
    assert tombstones() == 0


def file_delete_delay_ms(room: Room) -> None:
    for delay_ms in (5000, 90_000):
        room.set("file.delete.delay.ms", str(delay_ms))
        room.set("retention.ms", "1")
        room.write()
        room.log.roll()
        room.log.update_high_watermark(room.log.log_end_offset)
        room.clock.advance_ms(10)
        assert room.log_manager.delete_old_segments() == 1
        room.set("retention.ms", None)
        room.advance_ms(delay_ms - 1)
        assert room.files(".deleted")
        room.advance_ms(1)
        assert not room.files(".deleted")


def flush_messages(room: Room) -> None:
    room.write(count=3)
    assert room.log.recovery_point == 0
    room.set("flush.messages", "1")
    room.write()
    assert room.log.recovery_point == 4
    room.set("flush.messages", "5")
    room.write(count=4)
    assert room.log.recovery_point == 4
    room.write()
    assert room.log.recovery_point == 9


def flush_ms(room: Room) -> None:
    room.write()
    room.clock.advance_ms(DAY_MS)
    room.log_manager.flush_dirty_logs()
    assert room.log.recovery_point == 0
    room.set("flush.ms", "1000")
    room.log_manager.flush_dirty_logs()
    assert room.log.recovery_point == 1


def index_interval_bytes(room: Room) -> None:
    def entries(interval: str) -> int:
        room.write()
        room.set("index.interval.bytes", interval)
        room.log.roll()
        for _ in range(50):
            room.write(b"x" * 200)
        return room.log.active_segment.offset_index.entry_count

    assert entries("0") == 49
    assert entries("1000") < 15
    assert entries("1000000") == 0


def compaction_lag(room: Room) -> None:
    room.set("cleanup.policy", "compact")
    room.set("min.compaction.lag.ms", str(HOUR_MS))
    for _ in range(3):
        room.write()
    assert not room.clean()
    room.set("min.compaction.lag.ms", "0")
    assert room.clean()


def max_compaction_lag_ms(room: Room) -> None:
    room.set("cleanup.policy", "compact")
    room.set("min.cleanable.dirty.ratio", "0.9")
    for _ in range(3):
        room.write()
    assert room.clean()
    room.write()
    room.clock.advance_ms(HOUR_MS)
    assert not room.clean()
    room.set("max.compaction.lag.ms", str(HOUR_MS // 2))
    assert room.clean()
    room.write()
    room.clock.advance_ms(HOUR_MS)
    room.write()
    assert room.log.active_segment.base_offset == room.log.log_end_offset - 1, "and rolls no later"


def min_cleanable_dirty_ratio(room: Room) -> None:
    room.set("cleanup.policy", "compact")
    for number in range(20):
        room.write(key=b"%d" % number)
    assert room.clean()
    room.write(key=b"0")
    assert not room.clean()
    room.set("min.cleanable.dirty.ratio", "0.01")
    assert room.clean()


def max_message_bytes(room: Room) -> None:
    assert room.write(b"x" * 1000) is ErrorCode.NONE
    room.set("max.message.bytes", "500")
    assert room.write(b"x" * 1000) is ErrorCode.MESSAGE_TOO_LARGE
    room.set("max.message.bytes", "2000")
    assert room.write(b"x" * 1000) is ErrorCode.NONE


def timestamp_after(room: Room) -> None:
    late = room.clock.wall_ms() + 2 * HOUR_MS
    assert room.write(timestamp=late) is ErrorCode.INVALID_TIMESTAMP
    room.set("message.timestamp.after.max.ms", str(3 * HOUR_MS))
    assert room.write(timestamp=late) is ErrorCode.NONE


def timestamp_before(room: Room) -> None:
    early = room.clock.wall_ms() - 2 * HOUR_MS
    assert room.write(timestamp=early) is ErrorCode.NONE
    room.set("message.timestamp.before.max.ms", str(HOUR_MS))
    assert room.write(timestamp=early) is ErrorCode.INVALID_TIMESTAMP


def timestamp_type(room: Room) -> None:
    room.write(timestamp=5)
    room.set("message.timestamp.type", "LogAppendTime")
    room.write(timestamp=5, compression=CompressionType.LZ4, count=2)
    room.set("message.timestamp.type", "CreateTime")
    room.write(timestamp=6)
    raw = room.raw()
    assert [
        (header.timestamp_type, {record.timestamp for record in iter_records(raw, position)})
        for position, header in iter_headers(raw)
    ] == [
        (TimestampType.CREATE_TIME, {5}),
        (TimestampType.LOG_APPEND_TIME, {room.clock.wall_ms()}),
        (TimestampType.CREATE_TIME, {6}),
    ]


def min_insync_replicas(room: Room) -> None:
    assert room.write() is ErrorCode.NONE
    room.set("min.insync.replicas", "2")
    assert room.write(acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    room.set("min.insync.replicas", "1")
    assert room.write(acks=-1) is ErrorCode.NONE


def preallocate(room: Room) -> None:
    room.write()
    first = room.log.active_segment
    assert room.fs.size(first.path) == first.size
    room.set("preallocate", "true")
    second = room.log.roll()
    room.write()
    assert room.fs.size(second.path) == room.log.config.segment_bytes
    third = room.log.roll()
    assert room.fs.size(second.path) == second.size, "cut to what it holds when it is complete"
    room.close()
    assert room.fs.size(third.path) == 0, "and at a clean stop"


def retention(name: str, value: str) -> Callable[[Room], None]:
    def prove(room: Room) -> None:
        for _ in range(3):
            room.write(b"x" * 1000)
            room.log.roll()
        room.log.update_high_watermark(room.log.log_end_offset)
        room.clock.advance_ms(HOUR_MS)
        assert room.log_manager.delete_old_segments() == 0
        room.set(name, value)
        assert room.log_manager.delete_old_segments() >= 2

    return prove


def segment_bytes(room: Room) -> None:
    """The room has `internal.segment.bytes`, which a topic cannot override: a broker without it is asked."""
    ordinary = BrokerRoom()
    ordinary.push({"t": [state(1, is_new=True)]})
    found = ordinary.log_manager.get_log(TP)
    assert found is not None
    record = SimpleNamespace(
        resource_type=ResourceType.TOPIC, resource_name="t", name="segment.bytes", value=str(1024 * 1024)
    )
    ordinary.dynamic_config.apply_records([record], is_full=False)
    for _ in range(4):
        ordinary.answer(produce(build_batch([SimpleRecord(1_700_000_000_000, None, b"x" * 500_000)])), 9)
    assert found.num_segments == 2


def segment_index_bytes(room: Room) -> None:
    room.set("index.interval.bytes", "0")
    room.set("segment.index.bytes", "80")
    room.write()
    room.log.roll()
    before = room.log.num_segments
    for _ in range(24):
        room.write()
    assert room.log.num_segments == before + 2, "an index of 80 bytes has 10 entries"


def segment_ms(room: Room) -> None:
    room.write()
    room.clock.advance_ms(HOUR_MS)
    room.write()
    assert room.log.num_segments == 1
    room.set("segment.ms", str(HOUR_MS // 2))
    room.write()
    assert room.log.num_segments == 2


def segment_jitter_ms(room: Room) -> None:
    room.set("segment.ms", str(DAY_MS))
    room.set("segment.jitter.ms", str(DAY_MS))
    jitters = {room.log.active_segment.roll_jitter_ms}
    for _ in range(20):
        room.write()
        jitters.add(room.log.roll().roll_jitter_ms)
    assert len(jitters) > 10
    assert max(jitters) <= DAY_MS
    room.set("segment.jitter.ms", "0")
    assert room.log.roll().roll_jitter_ms in {0, room.log.active_segment.roll_jitter_ms}
    room.write()
    assert room.log.roll().roll_jitter_ms == 0


def throttled(side: str) -> Callable[[Room], None]:
    def prove(room: Room) -> None:
        quota = getattr(room.manager.quotas, side)
        for value, expected in (("0:1", True), ("0:2", False), ("*", True), (None, False)):
            room.set(f"{side}.replication.throttled.replicas", value)
            assert quota.is_throttled(TP) is expected

    return prove


def remote_storage_is_refused(room: Room) -> None:
    with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled"):
        check_topic(room.config.topic_config({"remote.storage.enable": "true"}))


NO_REMOTE_STORAGE = "there is no remote storage, and remote.storage.enable=true is refused (see that row)"
BY_CONTROLLER = "tests/controller/test_quorum_controller.py: test_unclean_elections_happen_where_a_topic_allows_them"

TABLE: dict[str, Callable[[Room], None] | str] = {
    "cleanup.policy": cleanup_policy,
    "compression.gzip.level": level("gzip", "1", "9"),
    "compression.lz4.level": level("lz4", "1", "12"),
    "compression.type": compression_type,
    "compression.zstd.level": level("zstd", "-50", "19"),
    "delete.retention.ms": delete_retention_ms,
    "file.delete.delay.ms": file_delete_delay_ms,
    "flush.messages": flush_messages,
    "flush.ms": flush_ms,
    "follower.replication.throttled.replicas": throttled("follower"),
    "index.interval.bytes": index_interval_bytes,
    "leader.replication.throttled.replicas": throttled("leader"),
    "local.retention.bytes": NO_REMOTE_STORAGE,
    "local.retention.ms": NO_REMOTE_STORAGE,
    "max.compaction.lag.ms": max_compaction_lag_ms,
    "max.message.bytes": max_message_bytes,
    "message.timestamp.after.max.ms": timestamp_after,
    "message.timestamp.before.max.ms": timestamp_before,
    "message.timestamp.type": timestamp_type,
    "min.cleanable.dirty.ratio": min_cleanable_dirty_ratio,
    "min.compaction.lag.ms": compaction_lag,
    "min.insync.replicas": min_insync_replicas,
    "preallocate": preallocate,
    "remote.log.copy.disable": NO_REMOTE_STORAGE,
    "remote.log.delete.on.disable": NO_REMOTE_STORAGE,
    "remote.storage.enable": remote_storage_is_refused,
    "retention.bytes": retention("retention.bytes", "1000"),
    "retention.ms": retention("retention.ms", "1000"),
    "segment.bytes": segment_bytes,
    "segment.index.bytes": segment_index_bytes,
    "segment.jitter.ms": segment_jitter_ms,
    "segment.ms": segment_ms,
    "unclean.leader.election.enable": BY_CONTROLLER,
}


def test_the_table_has_every_key() -> None:
    assert TABLE.keys() == TOPIC_KEYS.keys()


@pytest.mark.skipif(not REFERENCE.exists(), reason="Kafka's list of keys is not at hand")
def test_the_table_has_every_key_of_apache_kafka() -> None:
    with REFERENCE.open() as file:
        kafkas = {row[1] for row in csv.reader(file, delimiter="\t") if row[0] == "topic"}
    assert TABLE.keys() == kafkas


@pytest.mark.parametrize("name", [name for name, proof in TABLE.items() if callable(proof)])
def test_a_key_is_honoured_at_run_time(name: str) -> None:
    proof = TABLE[name]
    assert callable(proof)
    proof(Room())
