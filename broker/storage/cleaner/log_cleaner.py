"""The cleaner threads: each compacts the filthiest log, then looks for the next.

Rules
1. A thread that finds nothing to do waits log.cleaner.backoff.ms.
2. A log that cannot be cleaned is marked and skipped. A failed disk takes its directory offline. Neither ends the
   thread; only a bug does, which is logged and counted (DeadThreadCount).
3. Settings are read at the beginning of each round. A change at run time stops the threads, which abandon their rounds,
   and starts the configured number (`reconfigure`), as in Kafka. This replaces dead threads, too.
4. A busy broker is cleaned slowly (`yielding.py`).
5. All threads together obey log.cleaner.io.max.bytes.per.second and log.cleaner.dedupe.buffer.size.
6. Tombstones and transaction markers stay while a replica is out of sync (`all_in_sync`), or while the log is copied to
   another log directory. A replica that comes back without them would keep what they delete or abort.

The log manager applies retention to compacted logs as to all others. The swap of a compacted segment notices segments
that were deleted meanwhile.

Threads: `start`, `reconfigure` and `shutdown` by the thread that runs the broker; metrics by any.
Source: Kafka's LogCleaner, 4.3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from barnabas.broker.storage.cleaner.cleaner import (
    Check,
    Cleaner,
    CleanerStats,
    CleaningAbortedError,
    LogToClean,
    MayForget,
    always,
)
from barnabas.broker.storage.cleaner.cleaner_manager import LogCleanerManager
from barnabas.broker.storage.cleaner.offset_map import OffsetMap
from barnabas.broker.storage.cleaner.throttler import Throttler
from barnabas.broker.storage.cleaner.yielding import Yielding, no_traffic
from barnabas.broker.storage.log_manager import LogManager
from barnabas.common.clock import Clock
from barnabas.common.disk.files import FileSystem
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.config import Config, ConfigError
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue

log = logging.getLogger("barnabas.storage.cleaner")

SETTINGS = (
    "log_cleaner_backoff_ms",
    "log_cleaner_dedupe_buffer_size",
    "log_cleaner_io_buffer_load_factor",
    "log_cleaner_io_buffer_size",
    "log_cleaner_io_max_bytes_per_second",
    "log_cleaner_threads",
)
MS_PER_S = 1000
MIB = 1024 * 1024


class LogCleaner:
    """All cleaner threads of a broker. `config` is the broker's; its values change at run time."""

    def __init__(
        self,
        config: Config,
        logs: LogManager,
        clock: Clock,
        fs: FileSystem,
        registry: Registry,
        traffic: Callable[[], int] = no_traffic,
        all_in_sync: MayForget = always,
    ) -> None:
        directories = [directory.path for directory in logs.directories]
        self.manager = LogCleanerManager(fs, directories, logs.all_logs, clock)
        self._config = config
        self._logs = logs
        self._all_in_sync = all_in_sync
        self._clock = clock
        self._fs = fs
        self._traffic = traffic
        self._throttler = Throttler(config.log_cleaner_io_max_bytes_per_second, clock)
        self._settings: list[object] = []  # those that the threads began with; owner: the thread that starts them
        self._threads: list[CleanerThread] = []  # replaced whole by the thread that starts, reconfigures, stops
        self._register(registry, directories)
        logs.watcher = self.manager

    def start(self) -> None:
        """Start the threads, unless log.cleaner.enable=false: compacted topics then grow forever, as in Kafka."""
        if not self._config.log_cleaner_enable:
            log.warning("log.cleaner.enable=false: compacted topics are not compacted")
            return
        self.manager.check_ends()
        self._run_threads(int(self._config.log_cleaner_threads))

    def check_change(self, new: Config) -> None:
        """Raise ConfigError for settings that the threads cannot adopt at run time."""
        wanted, present = int(new.log_cleaner_threads), int(self._config.log_cleaner_threads)
        if wanted < 1:
            raise ConfigError("Log cleaner threads should be at least 1")
        if wanted < present // 2:
            raise ConfigError(f"Log cleaner threads cannot be reduced to less than half the current value {present}")
        if wanted > present * 2:
            raise ConfigError(
                f"Log cleaner threads cannot be increased to more than double the current value {present}"
            )

    def reconfigure(self) -> None:
        """Apply changed settings, if the cleaner runs."""
        self._throttler.bytes_per_second = self._config.log_cleaner_io_max_bytes_per_second
        if self._threads and self._present_settings() != self._settings:
            self.shutdown()
            self._run_threads(int(self._config.log_cleaner_threads))

    def _present_settings(self) -> list[object]:
        return [getattr(self._config, name) for name in SETTINGS]

    def _run_threads(self, count: int) -> None:
        self._settings = self._present_settings()
        self._threads = [CleanerThread(self, number) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def shutdown(self) -> None:
        """Stop the threads, which abandon their rounds, and join them."""
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.join()

    def look_now(self) -> None:
        """Have every thread look for work now: the clock jumped."""
        for thread in self._threads:
            thread.look_now()

    @property
    def is_idle(self) -> bool:
        """Whether no thread works, or was asked to look and has not looked yet."""
        return all(thread.is_idle for thread in self._threads)

    # A round

    def new_cleaner(self) -> Cleaner:
        """Return a cleaner with the present settings and a thread's share of the memory."""
        config = self._config
        threads = max(int(config.log_cleaner_threads), 1)
        offset_map = OffsetMap(
            int(config.log_cleaner_dedupe_buffer_size) // threads, float(config.log_cleaner_io_buffer_load_factor)
        )
        # Half for reading, half for writing.
        buffer_bytes = int(config.log_cleaner_io_buffer_size) // threads // 2
        yielding = Yielding(self._traffic, self._clock)
        return Cleaner(self._fs, self._clock, offset_map, buffer_bytes, self._throttler, yielding, self._may_forget)

    def _may_forget(self, tp: TopicPartition) -> bool:
        return self._logs.future_log(tp) is None and self._all_in_sync(tp)

    def clean_filthiest(self, check: Check) -> CleanerStats | None:
        """Clean one log; None if no log needed it or it failed. Raises CleaningAbortedError if the thread must stop."""
        work = self.manager.grab_filthiest()
        if work is None:
            return None
        stats, end = None, work.first_dirty_offset
        try:
            # Why: what replaces a record must be durable before the record goes, and recovery looks for no holes in a
            # log once it is noted (recovery.py). The topic may not have been compacted when its segments were rolled.
            work.log.note_gaps()  # before the flush: what is rolled from now on is flushed at once
            work.log.flush_rolled()
            self.manager.begin(work)
            end, stats = self.new_cleaner().clean(work, check)
            _report(work, end, stats)
        except CleaningAbortedError as error:
            log.info("Cleaning of %s ended early: %s", work.log.topic_partition, error)
            check(0)
        except OSError as error:
            work.log.fail(error)
        except Exception:
            if work.log.is_offline:  # the flush failed, which the log has reported
                return None
            log.exception("%s cannot be cleaned and is skipped from now on", work.log.topic_partition)
            self.manager.mark_uncleanable(work.log)
        finally:
            self._finish(work, end)
        return stats

    def _finish(self, work: LogToClean, end_offset: int) -> None:
        try:
            self.manager.done(work, end_offset)
        except OSError as error:
            work.log.fail(error)

    @property
    def backoff_ms(self) -> int:
        """How long a thread waits after it found no work."""
        return int(self._config.log_cleaner_backoff_ms)

    # Metrics

    def _register(self, registry: Registry, directories: list[str]) -> None:
        manager = self.manager
        registry.gauge(catalogue.CLEANER_MAX_DIRTY_PERCENT, lambda: int(100 * manager.dirtiest_ratio))
        registry.gauge(catalogue.CLEANER_TIME_SINCE_LAST_RUN_MS, manager.ms_since_last_run)
        for path in directories:
            registry.gauge(
                catalogue.CLEANER_UNCLEANABLE_PARTITIONS_COUNT,
                partial(manager.uncleanable_count, path),
                logDirectory=path,
            )
            registry.gauge(
                catalogue.CLEANER_UNCLEANABLE_BYTES, partial(manager.uncleanable_bytes, path), logDirectory=path
            )
        registry.gauge(
            catalogue.CLEANER_MAX_BUFFER_UTILIZATION_PERCENT,
            lambda: int(100 * max((stats.map_utilization for stats in self._last_stats()), default=0)),
        )
        registry.gauge(catalogue.CLEANER_RECOPY_PERCENT, self._recopy_percent)
        registry.gauge(
            catalogue.CLEANER_MAX_CLEAN_TIME_SECS,
            lambda: int(max((stats.elapsed_s for stats in self._last_stats()), default=0)),
        )
        registry.gauge(catalogue.CLEANER_MAX_COMPACTION_DELAY_SECS, lambda: manager.max_compaction_delay_ms // MS_PER_S)
        registry.gauge(
            catalogue.CLEANER_DEAD_THREAD_COUNT, lambda: sum(thread.is_dead for thread in list(self._threads))
        )

    def _last_stats(self) -> list[CleanerStats]:
        return [thread.last_stats for thread in list(self._threads)]

    def _recopy_percent(self) -> int:
        stats = self._last_stats()
        read = sum(each.bytes_read for each in stats)
        return 100 * sum(each.bytes_written for each in stats) // max(read, 1)


class CleanerThread:
    """One cleaner thread."""

    def __init__(self, owner: LogCleaner, number: int) -> None:
        self.last_stats = CleanerStats()  # replaced whole by the thread
        self.is_dead = False  # set once by the thread
        self._owner = owner
        self._stopping = threading.Event()
        self._ring = threading.Event()  # set: look for work, instead of waiting for the next round
        self._is_waiting = False  # owner: the thread; whether its last look found no work
        self._thread = ServiceThread(
            f"kafka-log-cleaner-thread-{number}", f"log-cleaner-{number}", self._run, daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stopping.set()
        self._ring.set()

    def look_now(self) -> None:
        """Have the thread look for work at once, or once more after the present look."""
        self._ring.set()

    @property
    def is_idle(self) -> bool:
        """Whether a look that began after the last `look_now` found no work, or the thread has died."""
        return (self._is_waiting and not self._ring.is_set()) or self.is_dead

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._is_waiting = False  # Why first: `is_idle` must not see it beside a ring that was just cleared
                self._ring.clear()
                stats = self._owner.clean_filthiest(self._check)
                if stats is not None:
                    self.last_stats = stats
                    continue
                self._is_waiting = True
                if not self._stopping.is_set():  # Why: a ring that `stop` set may have been cleared above
                    self._ring.wait(self._owner.backoff_ms / MS_PER_S)
        except CleaningAbortedError:
            return  # from `_check`: the thread must stop
        except Exception:
            self.is_dead = True
            log.exception("a cleaner thread died")

    def _check(self, wait_ms: float) -> None:
        if self._stopping.wait(wait_ms / MS_PER_S) if wait_ms else self._stopping.is_set():
            raise CleaningAbortedError("the cleaner stops")


def _report(work: LogToClean, end_offset: int, stats: CleanerStats) -> None:
    seconds = max(stats.elapsed_s, 0.001)
    log.info(
        "Cleaned %s [%d, %d) in %.1f s (%.1f MB/s, %.0f %% of it for the map, which was %.1f %% full): "
        "%.1f to %.1f MB, %d to %d records",
        work.log.topic_partition,
        work.first_dirty_offset,
        end_offset,
        seconds,
        stats.bytes_read / MIB / seconds,
        (stats.indexed_ms - stats.began_ms) / MS_PER_S / seconds * 100,
        stats.map_utilization * 100,
        stats.bytes_read / MIB,
        stats.bytes_written / MIB,
        stats.records_read,
        stats.records_written,
    )
