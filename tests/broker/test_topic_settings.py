"""Every topic key: the effect of setting it at run time on a topic whose log is in use.

`TABLE` has a row for each of Kafka's keys (a test compares), with a function that proves the effect, or the reason why
there is none to prove. Each function gets a broker that leads partition 0 of topic `t`. It sets the key as the
controller's push does after an IncrementalAlterConfigs, and checks how the broker then behaves.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.broker.storage.cleaner.log_cleaner import LogCleaner
from barnabas.broker.storage.log.log import FetchIsolation, Log
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.errors import ConfigError
from barnabas.config.resources.topic import check_topic
from barnabas.config.table.keys import TOPIC_KEYS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import Record, SimpleRecord, TimestampType, build_batch, iter_headers, iter_records
from barnabas.protocol.records.compression import CompressionType
from tests.support.broker.broker_rig import BrokerRig, fetch, produce, state

TP = TopicPartition("t", 0)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class TopicBroker(BrokerRig):
    """A broker that leads one partition and allows small segments."""

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
        """Set a key of the topic, or remove it, as the push after IncrementalAlterConfigs does."""
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
        """The bytes of all stored batches."""
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
        """Write a compressible batch and return its size in the log, in bytes."""
        before = self.log.size_in_bytes
        text = "".join(f"{number * number} " for number in range(3000)).encode()
        assert self.write(text, **options) is ErrorCode.NONE
        return self.log.size_in_bytes - before

    def files(self, ending: str) -> list[str]:
        return [entry.name for entry in self.fs.listdir(self.log.directory) if entry.name.endswith(ending)]

    def clean(self) -> bool:
        """Clean the log if it is dirty enough; returns whether it was."""
        self.log.roll()
        self.log.update_high_watermark(self.log.log_end_offset)
        return self.cleaner.clean_filthiest(lambda _count: None) is not None


# A proof for each key


def cleanup_policy(broker: TopicBroker) -> None:
    broker.set("cleanup.policy", "compact")
    assert broker.write(key=None) is ErrorCode.INVALID_RECORD
    broker.set("cleanup.policy", "delete")
    assert broker.write(key=None) is ErrorCode.NONE
    broker.set("cleanup.policy", "compact")
    for _ in range(3):
        broker.write(key=b"same")
    assert broker.clean()


def compression_type(broker: TopicBroker) -> None:
    for wanted, kind in (("gzip", CompressionType.GZIP), ("zstd", CompressionType.ZSTD)):
        broker.set("compression.type", wanted)
        broker.write(compression=CompressionType.LZ4)
        assert list(iter_headers(broker.raw()))[-1][1].compression_type is kind
    broker.set("compression.type", "uncompressed")
    broker.write(compression=CompressionType.LZ4)
    broker.set("compression.type", None)
    broker.write(compression=CompressionType.LZ4)
    kinds = [header.compression_type for _, header in iter_headers(broker.raw())]
    assert kinds[-2:] == [CompressionType.NONE, CompressionType.LZ4]


def level(codec: str, low: str, high: str) -> Callable[[TopicBroker], None]:
    def prove(broker: TopicBroker) -> None:
        broker.set("compression.type", codec)
        broker.set(f"compression.{codec}.level", low)
        large = broker.size_of()
        broker.set(f"compression.{codec}.level", high)
        assert broker.size_of() < large

    return prove


def delete_retention_ms(broker: TopicBroker) -> None:
    broker.set("cleanup.policy", "compact")
    broker.set("delete.retention.ms", str(HOUR_MS))

    broker.set("min.cleanable.dirty.ratio", "0.01")

    def tombstones() -> int:
        return [record.value for record in broker.records()].count(None)

    broker.write(None, key=b"gone")
    broker.write(key=b"other")
    assert broker.clean()
    assert tombstones() == 1
    broker.clock.advance_ms(HOUR_MS + 1)
    broker.write(key=b"other")
    assert broker.clean()
    assert tombstones() == 0


def file_delete_delay_ms(broker: TopicBroker) -> None:
    for delay_ms in (5000, 90_000):
        broker.set("file.delete.delay.ms", str(delay_ms))
        broker.set("retention.ms", "1")
        broker.write()
        broker.log.roll()
        broker.log.update_high_watermark(broker.log.log_end_offset)
        broker.clock.advance_ms(10)
        assert broker.log_manager.delete_old_segments() == 1
        broker.set("retention.ms", None)
        broker.advance_ms(delay_ms - 1)
        assert broker.files(".deleted")
        broker.advance_ms(1)
        assert not broker.files(".deleted")


def flush_messages(broker: TopicBroker) -> None:
    broker.write(count=3)
    assert broker.log.recovery_point == 0
    broker.set("flush.messages", "1")
    broker.write()
    assert broker.log.recovery_point == 4
    broker.set("flush.messages", "5")
    broker.write(count=4)
    assert broker.log.recovery_point == 4
    broker.write()
    assert broker.log.recovery_point == 9


def flush_ms(broker: TopicBroker) -> None:
    broker.write()
    broker.clock.advance_ms(DAY_MS)
    broker.log_manager.flush_dirty_logs()
    assert broker.log.recovery_point == 0
    broker.set("flush.ms", "1000")
    broker.log_manager.flush_dirty_logs()
    assert broker.log.recovery_point == 1


def index_interval_bytes(broker: TopicBroker) -> None:
    def entries(interval: str) -> int:
        broker.write()
        broker.set("index.interval.bytes", interval)
        broker.log.roll()
        for _ in range(50):
            broker.write(b"x" * 200)
        return broker.log.active_segment.offset_index.entry_count

    assert entries("0") == 49
    assert entries("1000") < 15
    assert entries("1000000") == 0


def compaction_lag(broker: TopicBroker) -> None:
    broker.set("cleanup.policy", "compact")
    broker.set("min.compaction.lag.ms", str(HOUR_MS))
    for _ in range(3):
        broker.write()
    assert not broker.clean()
    broker.set("min.compaction.lag.ms", "0")
    assert broker.clean()


def max_compaction_lag_ms(broker: TopicBroker) -> None:
    broker.set("cleanup.policy", "compact")
    broker.set("min.cleanable.dirty.ratio", "0.9")
    for _ in range(3):
        broker.write()
    assert broker.clean()
    broker.write()
    broker.clock.advance_ms(HOUR_MS)
    assert not broker.clean()
    broker.set("max.compaction.lag.ms", str(HOUR_MS // 2))
    assert broker.clean()
    broker.write()
    broker.clock.advance_ms(HOUR_MS)
    broker.write()
    assert broker.log.active_segment.base_offset == broker.log.log_end_offset - 1, "the lag bounds a segment's age"


def min_cleanable_dirty_ratio(broker: TopicBroker) -> None:
    broker.set("cleanup.policy", "compact")
    for number in range(20):
        broker.write(key=b"%d" % number)
    assert broker.clean()
    broker.write(key=b"0")
    assert not broker.clean()
    broker.set("min.cleanable.dirty.ratio", "0.01")
    assert broker.clean()


def max_message_bytes(broker: TopicBroker) -> None:
    assert broker.write(b"x" * 1000) is ErrorCode.NONE
    broker.set("max.message.bytes", "500")
    assert broker.write(b"x" * 1000) is ErrorCode.MESSAGE_TOO_LARGE
    broker.set("max.message.bytes", "2000")
    assert broker.write(b"x" * 1000) is ErrorCode.NONE


def timestamp_after(broker: TopicBroker) -> None:
    late = broker.clock.wall_ms() + 2 * HOUR_MS
    assert broker.write(timestamp=late) is ErrorCode.INVALID_TIMESTAMP
    broker.set("message.timestamp.after.max.ms", str(3 * HOUR_MS))
    assert broker.write(timestamp=late) is ErrorCode.NONE


def timestamp_before(broker: TopicBroker) -> None:
    early = broker.clock.wall_ms() - 2 * HOUR_MS
    assert broker.write(timestamp=early) is ErrorCode.NONE
    broker.set("message.timestamp.before.max.ms", str(HOUR_MS))
    assert broker.write(timestamp=early) is ErrorCode.INVALID_TIMESTAMP


def timestamp_type(broker: TopicBroker) -> None:
    broker.write(timestamp=5)
    broker.set("message.timestamp.type", "LogAppendTime")
    broker.write(timestamp=5, compression=CompressionType.LZ4, count=2)
    broker.set("message.timestamp.type", "CreateTime")
    broker.write(timestamp=6)
    raw = broker.raw()
    assert [
        (header.timestamp_type, {record.timestamp for record in iter_records(raw, position)})
        for position, header in iter_headers(raw)
    ] == [
        (TimestampType.CREATE_TIME, {5}),
        (TimestampType.LOG_APPEND_TIME, {broker.clock.wall_ms()}),
        (TimestampType.CREATE_TIME, {6}),
    ]


def min_insync_replicas(broker: TopicBroker) -> None:
    assert broker.write() is ErrorCode.NONE
    broker.set("min.insync.replicas", "2")
    assert broker.write(acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    broker.set("min.insync.replicas", "1")
    assert broker.write(acks=-1) is ErrorCode.NONE


def preallocate(broker: TopicBroker) -> None:
    broker.write()
    first = broker.log.active_segment
    assert broker.fs.size(first.path) == first.size
    broker.set("preallocate", "true")
    second = broker.log.roll()
    broker.write()
    assert broker.fs.size(second.path) == broker.log.config.segment_bytes
    third = broker.log.roll()
    assert broker.fs.size(second.path) == second.size, "truncated to its records when it is complete"
    broker.close()
    assert broker.fs.size(third.path) == 0, "truncated at a clean shutdown as well"


def retention(name: str, value: str) -> Callable[[TopicBroker], None]:
    def prove(broker: TopicBroker) -> None:
        for _ in range(3):
            broker.write(b"x" * 1000)
            broker.log.roll()
        broker.log.update_high_watermark(broker.log.log_end_offset)
        broker.clock.advance_ms(HOUR_MS)
        assert broker.log_manager.delete_old_segments() == 0
        broker.set(name, value)
        assert broker.log_manager.delete_old_segments() >= 2

    return prove


def segment_bytes(broker: TopicBroker) -> None:
    """Uses an ordinary broker: `internal.segment.bytes` of the other one takes precedence over the topic's key."""
    ordinary = BrokerRig()
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


def internal_segment_bytes(broker: TopicBroker) -> None:
    broker.set("internal.segment.bytes", "100000")
    for _ in range(4):
        broker.write(b"x" * 60_000)
    assert broker.log.num_segments == 4


def segment_index_bytes(broker: TopicBroker) -> None:
    broker.set("index.interval.bytes", "0")
    broker.set("segment.index.bytes", "80")
    broker.write()
    broker.log.roll()
    before = broker.log.num_segments
    for _ in range(24):
        broker.write()
    assert broker.log.num_segments == before + 2, "an index of 80 bytes has 10 entries"


def segment_ms(broker: TopicBroker) -> None:
    broker.write()
    broker.clock.advance_ms(HOUR_MS)
    broker.write()
    assert broker.log.num_segments == 1
    broker.set("segment.ms", str(HOUR_MS // 2))
    broker.write()
    assert broker.log.num_segments == 2


def segment_jitter_ms(broker: TopicBroker) -> None:
    broker.set("segment.ms", str(DAY_MS))
    broker.set("segment.jitter.ms", str(DAY_MS))
    jitters = {broker.log.active_segment.roll_jitter_ms}
    for _ in range(20):
        broker.write()
        jitters.add(broker.log.roll().roll_jitter_ms)
    assert len(jitters) > 10
    assert max(jitters) <= DAY_MS
    broker.set("segment.jitter.ms", "0")
    assert broker.log.roll().roll_jitter_ms in {0, broker.log.active_segment.roll_jitter_ms}
    broker.write()
    assert broker.log.roll().roll_jitter_ms == 0


def throttled(side: str) -> Callable[[TopicBroker], None]:
    def prove(broker: TopicBroker) -> None:
        quota = getattr(broker.manager.quotas, side)
        for value, expected in (("0:1", True), ("0:2", False), ("*", True), (None, False)):
            broker.set(f"{side}.replication.throttled.replicas", value)
            assert quota.is_throttled(TP) is expected

    return prove


def remote_storage_is_refused(broker: TopicBroker) -> None:
    with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled"):
        check_topic(broker.config.topic_config({"remote.storage.enable": "true"}))


NO_REMOTE_STORAGE = "there is no remote storage, and remote.storage.enable=true is refused (see that row)"
BY_CONTROLLER = "tests/controller/test_quorum_controller.py: test_unclean_elections_happen_where_a_topic_allows_them"

TABLE: dict[str, Callable[[TopicBroker], None] | str] = {
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
    "internal.segment.bytes": internal_segment_bytes,
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
    """These are Apache Kafka's: tests/barnabas/config/table/test_keys.py."""
    assert TABLE.keys() == TOPIC_KEYS.keys()


@pytest.mark.parametrize("name", [name for name, proof in TABLE.items() if callable(proof)])
def test_a_key_is_honoured_at_run_time(name: str) -> None:
    proof = TABLE[name]
    assert callable(proof)
    proof(TopicBroker())


def test_a_fetch_of_an_old_version_gets_zstd_as_it_is() -> None:
    """As in Kafka 4, which converts nothing any more: clients of version 9 and below may know no zstd."""
    broker = TopicBroker()
    broker.set("compression.type", "zstd")
    assert broker.write() is ErrorCode.NONE
    (found,) = broker.answer(fetch(0), 9).responses[0].partitions
    assert (found.error_code, found.records.read()) == (ErrorCode.NONE, broker.raw())
