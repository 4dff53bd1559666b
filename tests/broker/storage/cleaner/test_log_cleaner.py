"""The cleaner threads on a log manager: rounds, settings at run time, metrics, failures, shutdown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.cleaner.cleaner import MayForget, always
from barnabas.broker.storage.cleaner.log_cleaner import LogCleaner
from barnabas.broker.storage.cleaner.yielding import no_traffic
from barnabas.broker.storage.directories.checksums import strip_from_entries
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem, OsFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.errors import ConfigError
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue
from tests.support.broker.compaction import NO_LIMIT, append_keyed, keyed_contents
from tests.support.broker.storage_bench import LONG_MAX, Bench, Settings
from tests.support.waiting import eventually

TOPIC_ID = b"\x06" * 16
COMPACTED = Settings(compact=True, delete=False, segment_bytes=500)


@dataclass
class BrokerSettings:
    """A broker's settings as storage reads them; some change at run time."""

    num_recovery_threads_per_data_dir: int = 1
    producer_id_expiration_ms: int = 86_400_000
    log_retention_check_interval_ms: int = 300_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    barnabas_record_validation: str = "full"
    barnabas_record_decompressed_max_bytes: int = 1 << 28
    transaction_partition_verification_enable: bool = True
    cordoned_log_dirs: tuple[str, ...] = ()
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 1 << 20
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_buffer_size: int = 1 << 18
    log_cleaner_io_max_bytes_per_second: float = NO_LIMIT
    log_cleaner_backoff_ms: int = 5
    topic: Settings = field(default_factory=Settings)

    def topic_config(self) -> Settings:
        return self.topic


class CleanerRig:
    """Logs of one topic, and a cleaner."""

    def __init__(
        self,
        fs: FileSystem | None = None,
        directory: str = "/a",
        *,
        clock: Clock | None = None,
        traffic: Callable[[], int] = no_traffic,
        all_in_sync: MayForget = always,
        directories: Sequence[str] = (),
        **settings: object,
    ) -> None:
        self.settings = BrokerSettings(**settings)
        self.bench = Bench(fs, directory)
        if clock is not None:
            self.bench.clock = clock
        self.directory = directory
        clock, fs = self.bench.clock, self.bench.fs
        self.logs = LogManager(self.settings, [directory, *directories], clock, ManualScheduler(clock), fs)
        if self.logs.open_directories(1) is None:
            self.logs.identify("cluster-a")
        self.logs.load_logs()
        self.registry = Registry(clock)
        self.cleaner = LogCleaner(self.settings, self.logs, clock, fs, self.registry, traffic, all_in_sync)

    def log(self, partition: int = 0, config: Settings = COMPACTED) -> Log:
        return self.logs.get_or_create_log(TopicPartition("flights", partition), TOPIC_ID, config, True)

    def filled(self, partition: int = 0, count: int = 30, keys: int = 3) -> Log:
        target = self.log(partition)
        for number in range(count):
            append_keyed(target, self.bench, (f"k{number % keys}", str(number)))
        target.roll()
        return target

    def gauge(self, row: catalogue.Metric, **labels: str) -> float:
        for found, instruments in self.registry.collect():
            if found is row:
                (gauge,) = [g for key, g in instruments if all(value in key for value in labels.values())]
                return gauge.read()
        raise AssertionError(f"{row} has no value")

    def run(self) -> bool:
        return self.cleaner.clean_filthiest(lambda _wait_ms: None) is not None


@pytest.fixture
def rig() -> CleanerRig:
    return CleanerRig()


def values(target: Log) -> list[str | None]:
    return [value for _, _, value in keyed_contents(target)]


def test_rounds_until_every_log_is_clean(rig: CleanerRig) -> None:
    logs = [rig.filled(number) for number in range(3)]
    assert [rig.run() for _ in range(4)] == [True, True, True, False]
    assert [values(target) for target in logs] == [["27", "28", "29"]] * 3
    text = strip_from_entries(rig.bench.fs.read_bytes("/a/cleaner-offset-checkpoint")).decode().splitlines()
    assert sorted(text[2:]) == ["flights 0 30", "flights 1 30", "flights 2 30"]
    append_keyed(logs[1], rig.bench, ("k0", "new"))
    logs[1].roll()
    assert not rig.run(), "one record of four is not half of the log"


def test_tombstones_stay_while_a_replica_is_away_or_the_log_is_copied() -> None:
    is_away = True
    rig = CleanerRig(all_in_sync=lambda _tp: not is_away, directories=("/b",))
    target = rig.log(config=Settings(compact=True, delete=False, min_cleanable_dirty_ratio=0.0))

    def clean(key: str) -> list[str | None]:
        append_keyed(target, rig.bench, (key, "1"))
        target.roll()
        rig.bench.clock.advance_ms(2 * target.config.delete_retention_ms)
        assert rig.run()
        return [key for _, key, value in keyed_contents(target) if value is None]

    append_keyed(target, rig.bench, ("gone", None))
    assert clean("a") == ["gone"]
    assert clean("b") == ["gone"]
    is_away = False
    rig.logs.create_future_log(target.topic_partition, rig.logs.directories[1])
    assert clean("c") == ["gone"]
    rig.logs.drop_future_log(target.topic_partition)
    assert clean("d") == []


def test_metrics(rig: CleanerRig) -> None:
    rig.filled(keys=30)
    damaged = rig.filled(1)
    path = damaged.segments.first.path
    rig.bench.fs.open(path).pwrite(b"\xff", 70)
    for _ in range(3):
        rig.run()
    assert rig.gauge(catalogue.CLEANER_MAX_DIRTY_PERCENT) == 0
    assert rig.gauge(catalogue.CLEANER_UNCLEANABLE_PARTITIONS_COUNT, logDirectory="/a") == 1
    assert rig.gauge(catalogue.CLEANER_UNCLEANABLE_BYTES, logDirectory="/a") == sum(
        segment.size for segment in damaged.segments.all[:-1]
    )
    rig.bench.clock.advance_ms(1500)
    assert rig.gauge(catalogue.CLEANER_TIME_SINCE_LAST_RUN_MS) == 1500
    assert rig.gauge(catalogue.CLEANER_DEAD_THREAD_COUNT) == 0
    assert rig.gauge(catalogue.CLEANER_MAX_COMPACTION_DELAY_SECS) == 0


def test_threads_clean_and_stop(tmp_path: Path) -> None:
    rig = CleanerRig(OsFileSystem(), str(tmp_path), log_cleaner_threads=2)
    logs = [rig.filled(number) for number in range(4)]
    rig.cleaner.start()
    names = {thread.name for thread in threading.enumerate()}
    assert {"kafka-log-cleaner-thread-0", "kafka-log-cleaner-thread-1"} <= names
    eventually("all are clean", lambda: [values(target) for target in logs] == [["27", "28", "29"]] * 4)
    eventually("it was noted", lambda: rig.gauge(catalogue.CLEANER_RECOPY_PERCENT) > 0)
    assert rig.gauge(catalogue.CLEANER_RECOPY_PERCENT) < 50
    assert rig.gauge(catalogue.CLEANER_MAX_BUFFER_UTILIZATION_PERCENT) == 0  # 3 keys in thousands of slots
    rig.cleaner.shutdown()
    assert not [thread.name for thread in threading.enumerate() if "log-cleaner" in thread.name]


def test_settings_change_at_run_time(rig: CleanerRig) -> None:
    rig.cleaner.start()
    rig.settings.log_cleaner_threads = 2
    rig.settings.log_cleaner_io_max_bytes_per_second = 5.0
    rig.cleaner.reconfigure()
    running = [thread.name for thread in threading.enumerate() if "log-cleaner" in thread.name]
    assert sorted(running) == ["kafka-log-cleaner-thread-0", "kafka-log-cleaner-thread-1"]
    assert rig.cleaner._throttler.bytes_per_second == 5
    rig.cleaner.shutdown()


@pytest.mark.parametrize(
    ("present", "wanted", "message"),
    [
        (1, 0, "at least 1"),
        (4, 1, "less than half the current value 4"),
        (2, 5, "more than double the current value 2"),
        (4, 2, None),
        (2, 4, None),
    ],
)
def test_bounds_of_a_change_of_threads(rig: CleanerRig, present: int, wanted: int, message: str | None) -> None:
    rig.settings.log_cleaner_threads = present
    if message is None:
        rig.cleaner.check_change(BrokerSettings(log_cleaner_threads=wanted))
    else:
        with pytest.raises(ConfigError, match=message):
            rig.cleaner.check_change(BrokerSettings(log_cleaner_threads=wanted))


def test_a_disabled_cleaner_starts_no_thread() -> None:
    rig = CleanerRig(log_cleaner_enable=False)
    rig.cleaner.start()
    assert not [thread.name for thread in threading.enumerate() if "log-cleaner" in thread.name]
    rig.cleaner.shutdown()


@pytest.mark.parametrize("part", [".cleaned", ".index"])
def test_a_failed_disk_takes_its_directory_offline(part: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyFileSystem(MemoryFileSystem(), matches=lambda _, path: part in path)
    rig = CleanerRig(disk)
    target = rig.filled()
    disk.fail_at = disk.operations + 1
    assert not rig.run()
    assert target.is_offline
    assert "skipped" not in caplog.text
    assert rig.logs.directories[0].is_offline
    assert not rig.run(), "and no later round tries again"


def test_what_replaces_a_record_is_durable_before_the_record_goes() -> None:
    """The topic was not compacted when its segments were rolled, so they were not flushed at once."""
    inner = MemoryFileSystem()
    snapshots: list[MemoryFileSystem] = []

    def copy(_operation: str, _path: str) -> bool:
        snapshots.append(inner.kill())
        return False

    rig = CleanerRig(FaultyFileSystem(inner, matches=copy))
    target = rig.log(config=Settings(segment_bytes=150))
    append_keyed(target, rig.bench, ("k", "1"))
    append_keyed(target, rig.bench, ("other", "1"))
    target.flush()
    for _ in range(4):
        append_keyed(target, rig.bench, ("k", "2"))
    target.update_config(Settings(compact=True, delete=False, segment_bytes=150, min_cleanable_dirty_ratio=0.0))
    snapshots.clear()
    assert rig.run()
    assert "1" not in [value for _, key, value in keyed_contents(target) if key == "k"]
    assert len(snapshots) > 10
    for snapshot in snapshots:
        found = CleanerRig(snapshot.crash()).logs.get_log(target.topic_partition)
        assert found is not None
        assert "k" in [key for _, key, _ in keyed_contents(found)]


def test_a_log_that_is_truncated_between_choice_and_round_is_left_alone(
    rig: CleanerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that lost its end to a loss of power cuts its followers below what was chosen to be cleaned."""
    target = rig.log(config=Settings(compact=True, delete=False, min_cleanable_dirty_ratio=0.0))
    for number in range(6):
        append_keyed(target, rig.bench, (f"k{number % 2}", str(number)))
        if number % 2:
            target.roll()
    flush, replace = Log.flush_rolled, Log.replace_segments

    def flush_and_truncate(log: Log) -> None:
        flush(log)
        log.truncate_to(3)

    def append_and_replace(log: Log, *arguments: Any) -> bool:
        append_keyed(log, rig.bench, ("new", "acknowledged"))
        return replace(log, *arguments)

    monkeypatch.setattr(Log, "flush_rolled", flush_and_truncate)
    monkeypatch.setattr(Log, "replace_segments", append_and_replace)
    rig.run()
    append_keyed(target, rig.bench, ("last", "acknowledged"))
    assert [offset for offset, _, _ in keyed_contents(target)] == list(range(target.log_end_offset))


def test_a_topic_that_is_compacted_no_more_has_no_hole_after_a_loss_of_power() -> None:
    inner = MemoryFileSystem()
    rig = CleanerRig(inner)
    target = rig.log(config=Settings(compact=True, delete=False, segment_bytes=150, min_cleanable_dirty_ratio=0.0))
    for number in range(4):
        append_keyed(target, rig.bench, ("k", str(number)))
    assert rig.run()
    target.update_config(Settings())
    target.flush()
    rig.logs.checkpoint_recovery_points()
    begin = target.log_end_offset
    append_keyed(target, rig.bench, ("a", "1"))
    for key in "bc":
        target.roll()
        append_keyed(target, rig.bench, (key, "1"))
    found = CleanerRig(inner.crash()).logs.get_log(target.topic_partition)
    assert found is not None
    offsets = [offset for offset, _, _ in keyed_contents(found) if offset >= begin]
    assert offsets == list(range(begin, found.log_end_offset))


def test_a_flush_that_a_truncation_overtakes_moves_no_recovery_point() -> None:
    inner = MemoryFileSystem()
    is_flushing = False

    def truncate_meanwhile(_operation: str, path: str) -> bool:
        nonlocal is_flushing
        if is_flushing and "leader-epoch" in path:
            is_flushing = False
            target.truncate_to(3)
            for keys in ("ab", "cd"):
                append_keyed(target, rig.bench, *((key, "1") for key in keys))
                target.roll()
        return False

    rig = CleanerRig(FaultyFileSystem(inner, matches=truncate_meanwhile))
    target = rig.log(config=Settings())
    for _ in range(8):
        append_keyed(target, rig.bench, ("k", "1"))
    is_flushing = True
    target.flush()
    rig.logs.checkpoint_recovery_points()
    found = CleanerRig(inner.crash()).logs.get_log(target.topic_partition)
    assert found is not None
    assert [offset for offset, _, _ in keyed_contents(found)] == list(range(found.log_end_offset))


def test_a_deleted_log_is_forgotten(rig: CleanerRig) -> None:
    target = rig.filled()
    assert rig.run()
    rig.logs.delete_logs({target.topic_partition: target.topic_id})
    assert rig.bench.fs.read_bytes("/a/cleaner-offset-checkpoint") == b"0\n0\n"


def test_a_truncated_log_is_dirty_from_there(rig: CleanerRig) -> None:
    target = rig.filled()
    assert rig.run()
    target.truncate_to(28)
    assert rig.cleaner.manager.clean_up_to(target) == 28
    append_keyed(target, rig.bench, ("k0", "again"))
    target.roll()
    target.update_config(Settings(compact=True, delete=False, min_cleanable_dirty_ratio=0.0))
    assert rig.run()
    assert values(target) == ["again"]


def test_a_throttled_cleaner_can_be_stopped(tmp_path: Path) -> None:
    rig = CleanerRig(OsFileSystem(), str(tmp_path), clock=SystemClock(), log_cleaner_io_max_bytes_per_second=1.0)
    target = rig.log(config=Settings(compact=True, delete=False, segment_bytes=1 << 20))
    for number in range(40):
        append_keyed(target, rig.bench, (f"k{number}", "v" * 20_000))
    target.roll()
    rig.cleaner._throttler._began_ms -= 10_000  # so that it checks at once
    rig.cleaner.start()
    eventually("the cleaner works", lambda: rig.cleaner.manager._in_progress)
    rig.cleaner.shutdown()  # at this rate a round takes days
    assert len(values(target)) == 40


def test_a_cleaner_that_waits_looks_at_once_when_it_is_asked(tmp_path: Path) -> None:
    rig = CleanerRig(OsFileSystem(), str(tmp_path), log_cleaner_backoff_ms=3_600_000)
    rig.cleaner.start()
    eventually("it found nothing", lambda: rig.cleaner.is_idle)
    target = rig.filled()
    rig.cleaner.look_now()
    eventually("it has looked", lambda: rig.cleaner.is_idle)
    assert values(target) == ["27", "28", "29"]
    rig.cleaner.shutdown()
