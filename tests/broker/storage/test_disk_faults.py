"""A broker's storage on a disk whose N-th operation fails, for every N, and that then loses power.

One story: a first start; logs are created, written to with `flush.messages=1`, rolled, checkpointed, moved to the other
log directory and deleted; a clean stop. It runs once without a fault, to count the operations that change the disk, and
once for each of them, which fails. After the fault the disk is dead, or works again. Then the power is cut (data that
was not fsynced is lost or torn), or only the process is killed. The broker must start afterwards, and:

1. every acknowledged record is there, once, in order, at its offset; others may follow;
2. the invariants of every log hold; the directories have their cluster and their ids;
3. a clean stop and another start change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from barnabas.broker.storage.directories.log_copying import catch_up
from barnabas.broker.storage.directories.log_directory import LogDirectoryError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.broker.storage.test_log_manager import BrokerSettings
from tests.support.broker.storage_bench import Settings, contents
from tests.support.sample import sample

DIRS = ("/a", "/b")
TPS = [TopicPartition("flights", index) for index in range(4)]
DOOMED = TPS[3]
TOPIC_ID = b"\x05" * 16
SETTINGS = Settings(flush_messages=1, segment_bytes=400)


@dataclass
class Acknowledged:
    """What the broker has acknowledged."""

    values: dict[TopicPartition, list[str]] = field(default_factory=lambda: {tp: [] for tp in TPS})
    directory_ids: dict[str, bytes] = field(default_factory=dict)
    is_identified: bool = False


class Broker:
    """Storage on a disk."""

    def __init__(self, fs: FileSystem) -> None:
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.manager = LogManager(
            BrokerSettings(num_recovery_threads_per_data_dir=1), DIRS, self.clock, self.scheduler, fs
        )

    def start(self, acked: Acknowledged) -> Broker:
        if self.manager.open_directories(1) is None:
            assert not acked.is_identified, "the directories have lost their identity"
        self.manager.identify("cluster-a")
        for directory in self.manager.online_directories():
            acked.directory_ids.setdefault(directory.path, directory.directory_id)
            assert acked.directory_ids[directory.path] == directory.directory_id
        acked.is_identified = True
        self.manager.load_logs(lambda _topic: SETTINGS)
        return self

    def log(self, tp: TopicPartition) -> Log:
        return self.manager.get_or_create_log(tp, TOPIC_ID, SETTINGS, True)


class Story:
    """The story. A step that a fault refuses is skipped; the later steps are still tried."""

    def __init__(self, fs: FileSystem, acked: Acknowledged) -> None:
        self.acked = acked
        self.broker = Broker(fs)
        self.refusals: set[ErrorCode] = set()

    def run(self) -> None:
        broker = self.broker
        try:
            broker.start(self.acked)
        except LogDirectoryError:
            return
        for step in (
            self.append_rounds,
            broker.manager.checkpoint_recovery_points,
            lambda: move(broker, TPS[0]),
            self.append_rounds,
            self.delete,
            self.append_rounds,
            lambda: broker.clock.advance_ms(70_000),
            broker.scheduler.run_due,
        ):
            self.attempt(step)
        broker.manager.shutdown()
        assert self.refusals <= {ErrorCode.KAFKA_STORAGE_ERROR}

    def attempt(self, step: Callable[[], object]) -> bool:
        try:
            step()
        except ApiError as error:
            self.refusals.add(error.code)
            return False
        return True

    def append_rounds(self) -> None:
        for _ in range(2):
            for tp in TPS:
                self.append(tp)
            self.broker.clock.advance_ms(2000)
            self.attempt(self.broker.scheduler.run_due)

    def append(self, tp: TopicPartition) -> None:
        number = len(self.acked.values[tp])
        value = f"{tp.partition}-{number}"
        batch = build_batch([SimpleRecord(self.broker.clock.wall_ms(), b"k", value.encode())])

        def step() -> None:
            log = self.broker.log(tp)
            info = log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=number // 4)
            assert info.first_offset == number
            log.update_high_watermark(log.log_end_offset)

        if self.attempt(step):
            self.acked.values[tp].append(value)

    def delete(self) -> None:
        self.acked.values[DOOMED] = []
        self.broker.manager.delete_logs({DOOMED: TOPIC_ID})


def move(broker: Broker, tp: TopicPartition) -> None:
    """Move a log to the other directory, as `LogDirMoves` does."""
    current = broker.manager.get_log(tp)
    if current is None:
        return
    here = broker.manager.directory_of(current)
    there = next(directory for directory in broker.manager.directories if directory is not here)
    future = broker.manager.create_future_log(tp, there)
    while catch_up(current, future, 300):
        continue
    future.flush()
    broker.manager.swap_in_future(tp)


def operations() -> int:
    disk = FaultyFileSystem(MemoryFileSystem())
    Story(disk, Acknowledged()).run()
    return disk.operations


COUNT = operations()


def check(after: MemoryFileSystem, acked: Acknowledged, context: str) -> None:
    acked = deepcopy(acked)  # another start on another disk is independent of this one
    broker = Broker(after).start(acked)
    assert all(not directory.is_offline for directory in broker.manager.directories), context
    for tp in TPS:
        log = broker.manager.get_log(tp)
        if tp == DOOMED:
            continue
        found = [] if log is None else contents(log)
        expected = list(enumerate(acked.values[tp]))
        assert found[: len(expected)] == expected, f"{context}: {tp}"
        assert [offset for offset, _ in found] == list(range(len(found))), f"{context}: {tp}"
        if log is not None:
            log.invariants()
    before = all_contents(broker)
    broker.manager.shutdown()
    again = Broker(after).start(acked)
    assert all(d.clean_shutdown_epoch is not None for d in again.manager.directories), context
    assert all_contents(again) == before, context


def all_contents(broker: Broker) -> dict[TopicPartition, list[tuple[int, str]]]:
    return {log.topic_partition: contents(log) for log in broker.manager.all_logs()}


def test_the_story_is_long_enough() -> None:
    assert COUNT > 200


@pytest.mark.parametrize("sticky", [True, False], ids=["dead", "once"])
@pytest.mark.parametrize("part", range(8))
def test_each_operation_fails_and_the_power_is_cut(part: int, sticky: bool) -> None:
    for fail_at in sample(range(1 + part, COUNT + 1, 8), 2):
        disk = MemoryFileSystem()
        acked = Acknowledged()
        Story(FaultyFileSystem(disk, fail_at=fail_at, sticky=sticky), acked).run()
        after, ending = [
            (disk.crash(), "lost"),
            (disk.crash(random.Random(fail_at)), "torn"),
            (disk.kill(), "killed"),
        ][(fail_at + sticky) % 3]
        check(after, acked, f"operation {fail_at} of {COUNT} failed, {ending}")


@pytest.mark.parametrize("part", range(4))
def test_the_power_is_cut_at_each_operation(part: int) -> None:
    """Nothing fails before: every record acknowledged by then is there, though names of files may be lost, too."""
    for last in sample(range(1 + part, COUNT + 1, 4), 2):
        disk = MemoryFileSystem()
        acked = Acknowledged()
        Story(FaultyFileSystem(disk, fail_at=last, sticky=True), acked).run()
        check(disk.crash(names_survive=False), acked, f"the power went after operation {last}")
