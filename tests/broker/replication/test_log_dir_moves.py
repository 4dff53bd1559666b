"""Moves between log directories, step by step: `replication/log_dir_moves.py`, `apis/k34_alter_replica_log_dirs.py`."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.replication import log_dir_moves
from barnabas.broker.replication.log_dir_moves import COPY_RATE, IDLE_MS
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.broker.storage.directories.log_copying import catch_up
from barnabas.broker.storage.log.log import Log
from barnabas.common.disk.faulty_files import MemoryFileSlice
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k34_alter_replica_log_dirs as wire
from barnabas.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state, topic_id

TP = TopicPartition("t", 0)


class TwoDirectories(BrokerRig):
    """A broker with two log directories that leads one partition, whose log is in /d1."""

    def __init__(self, fs: Any = None, **settings: str) -> None:
        super().__init__(fs, log_dirs="/d1,/d2", **settings)

    def lead(self) -> TwoDirectories:
        self.push({"t": [state(1, is_new=True)]})
        return self

    def write(self, *values: bytes) -> None:
        response = self.answer(produce(batch(*values)), 9).responses[0].partition_responses[0]
        assert response.error_code == ErrorCode.NONE

    def values(self) -> bytes:
        (found,) = self.answer(fetch(0), 12).responses[0].partitions
        assert found.error_code == ErrorCode.NONE
        data: bytes = found.records.read()
        return data

    def move(self, path: str = "/d2", tp: TopicPartition = TP) -> ErrorCode:
        topics = [wire.AlterReplicaLogDirTopic(name=tp.topic, partitions=[tp.partition])]
        request = wire.AlterReplicaLogDirsRequest(dirs=[wire.AlterReplicaLogDir(path=path, topics=topics)])
        return ErrorCode(self.answer(request, 2).results[0].partitions[0].error_code)

    def set_rate(self, value: str) -> None:
        record = SimpleNamespace(resource_type=ResourceType.BROKER, resource_name="1", name=COPY_RATE, value=value)
        self.dynamic_config.apply_records([record], is_full=False)

    @property
    def log(self) -> Log:
        found = self.log_manager.get_log(TP)
        assert found is not None
        return found

    def described(self) -> dict[str, list[tuple[int, bool]]]:
        """(lag, is it a copy?) of the partition in each directory."""
        results = self.answer(DescribeLogDirsRequest(topics=None), 4).results
        return {r.log_dir: [(p.offset_lag, p.is_future_key) for t in r.topics for p in t.partitions] for r in results}


@pytest.fixture
def rig() -> TwoDirectories:
    return TwoDirectories().lead()


def test_a_log_moves_while_records_are_appended(rig: TwoDirectories) -> None:
    d1, d2 = (directory.directory_id for directory in rig.log_manager.directories)
    assert rig.assignments.told == {(topic_id("t"), 0): d1}
    rig.write(b"a", b"b")
    assert rig.move() is ErrorCode.NONE
    assert rig.described() == {"/d1": [(0, False)], "/d2": [(2, True)]}
    rig.write(b"c")
    before = rig.values()
    assert rig.log_dir_moves.turn() == 0
    assert rig.log.directory == "/d2/t-0"
    assert rig.described() == {"/d1": [], "/d2": [(0, False)]}
    assert rig.values() == before
    assert rig.assignments.told == {(topic_id("t"), 0): d2}
    assert rig.log_dir_moves.turn() is None
    rig.write(b"d")
    assert rig.log.high_watermark == rig.log.log_end_offset == 4
    rig.advance_ms(rig.log.config.file_delete_delay_ms)
    assert [entry.name for entry in rig.fs.listdir("/d1") if entry.is_dir] == []


def test_a_large_log_takes_several_turns(rig: TwoDirectories, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "READ_BYTES", 500)
    for _ in range(20):
        rig.write(b"x" * 200)
    rig.move()
    turns = 1
    while rig.log_dir_moves.turn() is not None:
        turns += 1
    assert turns >= 10
    assert rig.log.directory == "/d2/t-0"


def test_a_log_that_starts_inside_a_batch_moves(rig: TwoDirectories) -> None:
    rig.write(*[b"x"] * 10)
    rig.log.maybe_increment_log_start_offset(5, "a test")
    rig.move()
    rig.log_dir_moves.turn()
    assert rig.log.directory == "/d2/t-0"
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (5, 10)


def test_copying_keeps_to_the_rate() -> None:
    rig = TwoDirectories().lead()
    rig.set_rate("1000")
    for _ in range(5):
        rig.write(b"x" * 500)
    rig.move()
    rig.clock.advance_ms(300)
    pause_ms = rig.log_dir_moves.turn()
    assert pause_ms is not None
    assert 2000 < pause_ms < 3500
    rig.set_rate("1000000000")
    rig.move("/d1")
    rig.clock.advance_ms(300)
    assert rig.log_dir_moves.turn() == 0


def test_a_move_back_cancels_the_first_move(rig: TwoDirectories) -> None:
    rig.write(b"a")
    rig.move()
    assert rig.move("/d1") is ErrorCode.NONE
    assert rig.described() == {"/d1": [(0, False)], "/d2": []}
    assert rig.log_dir_moves.turn() is None
    assert rig.log.directory == "/d1/t-0"


def test_a_move_waits_for_the_controller(rig: TwoDirectories) -> None:
    d2 = rig.log_manager.directories[1].directory_id
    rig.assignments.is_slow = True
    rig.write(b"a")
    rig.move()
    for _ in range(3):
        assert rig.log_dir_moves.turn() is not None
    assert rig.assignments.told == {(topic_id("t"), 0): d2}
    assert len(rig.assignments.waiting) == 1, "reported once"
    assert rig.log.directory == "/d1/t-0", "waits for the answer"
    rig.write(b"b")
    rig.push({"t": [state(1, partition_epoch=1)]})
    assert rig.assignments.told == {(topic_id("t"), 0): d2}, "a push meanwhile does not report the old directory"
    rig.assignments.waiting[0](True)
    rig.log_dir_moves.turn()
    assert rig.log.directory == "/d2/t-0"
    assert rig.log.log_end_offset == 2
    assert rig.log_dir_moves.turn() is None


def test_a_refused_move_is_reported_again(rig: TwoDirectories) -> None:
    rig.assignments.is_slow = True
    rig.move()
    rig.log_dir_moves.turn()
    rig.assignments.waiting.pop()(False)
    rig.log_dir_moves.turn()
    assert len(rig.assignments.waiting) == 1
    rig.assignments.waiting.pop()(True)
    rig.log_dir_moves.turn()
    assert rig.log.directory == "/d2/t-0"


@pytest.mark.parametrize("is_accepted", [None, True, False])
@pytest.mark.parametrize("end", ["cancelled", "disk"])
def test_a_cancelled_move_reports_the_old_directory_again(
    rig: TwoDirectories, end: str, is_accepted: bool | None
) -> None:
    d1, d2 = rig.log_manager.directories
    rig.assignments.is_slow = True
    rig.move()
    rig.log_dir_moves.turn()
    assert rig.assignments.told == {(topic_id("t"), 0): d2.directory_id}
    if end == "disk":
        rig.log_manager.fail_directory(d2, OSError("gone"))
        rig.log_manager.forget_directory(d2)
    else:
        rig.move("/d1")
    if is_accepted is not None:
        rig.assignments.waiting[0](is_accepted)
    assert rig.log_dir_moves.turn() is None
    if is_accepted is not False:
        assert rig.assignments.told == {(topic_id("t"), 0): d1.directory_id}
    assert rig.log.directory == "/d1/t-0"


def test_a_second_move_replaces_a_reported_one() -> None:
    rig = TwoDirectories().lead()
    rig.assignments.is_slow = True
    rig.move()
    rig.log_dir_moves.turn()
    rig.move("/d1")
    rig.move("/d2")
    rig.log_dir_moves.turn()
    for on_done in rig.assignments.waiting:
        on_done(True)
    rig.log_dir_moves.turn()
    assert rig.log.directory == "/d2/t-0"
    assert rig.assignments.told == {(topic_id("t"), 0): rig.log_manager.directories[1].directory_id}


def test_a_partition_deleted_after_its_move_was_reported(rig: TwoDirectories) -> None:
    rig.assignments.is_slow = True
    rig.move()
    rig.log_dir_moves.turn()
    rig.stop_replica(TP, leader_epoch=-2, delete=True)
    rig.assignments.waiting[0](True)
    assert rig.log_dir_moves.turn() is None
    assert rig.assignments.told == {}


def test_errors(rig: TwoDirectories) -> None:
    assert rig.move("/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert rig.move(tp=TopicPartition("x" * 230, 0)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert rig.move(tp=TopicPartition("unknown", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.push({"elsewhere": [state(2, (2, 3))]})
    assert rig.move(tp=TopicPartition("elsewhere", 0)) is ErrorCode.REPLICA_NOT_AVAILABLE
    rig.push({"elsewhere": [state(2, (1, 2, 3), partition_epoch=1, is_new=True)]})
    coming = rig.log_manager.get_log(TopicPartition("elsewhere", 0))
    assert coming is not None
    assert coming.directory.startswith("/d2/"), "requested before the partition was assigned"
    rig.log_manager.fail_directory(rig.log_manager.directories[1], OSError("gone"))
    assert rig.move("/d2") is ErrorCode.KAFKA_STORAGE_ERROR


def test_nothing_moves_into_a_cordoned_directory(rig: TwoDirectories) -> None:
    record = SimpleNamespace(
        resource_type=ResourceType.BROKER, resource_name="1", name="cordoned.log.dirs", value="/d2"
    )
    rig.dynamic_config.apply_records([record], is_full=False)
    rig.cache.note_features({"metadata.version": 30})
    assert rig.move() is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    results = rig.answer(DescribeLogDirsRequest(topics=None), 5).results
    assert [(found.log_dir, found.is_cordoned) for found in results] == [("/d1", False), ("/d2", True)]
    for number in range(3):
        rig.push({f"new-{number}": [state(1, is_new=True)]})
        made = rig.log_manager.get_log(TopicPartition(f"new-{number}", 0))
        assert made is not None
        assert made.directory.startswith("/d1/")
    record.value = None
    rig.dynamic_config.apply_records([record], is_full=False)
    assert rig.move() is ErrorCode.NONE


def test_deleting_a_partition_ends_its_move(rig: TwoDirectories) -> None:
    rig.write(b"a")
    rig.move()
    rig.stop_replica(TP, leader_epoch=-2, delete=True)
    assert rig.log_dir_moves.turn() is None
    assert rig.assignments.told == {}
    rig.advance_ms(60_000)
    assert [entry.name for path in ("/d1", "/d2") for entry in rig.fs.listdir(path) if entry.is_dir] == []


def test_a_move_continues_after_a_restart(rig: TwoDirectories) -> None:
    rig.write(b"a")
    rig.move()
    rig.close()
    again = TwoDirectories(rig.fs)
    assert again.log_dir_moves.turn() == IDLE_MS, "the partition is not pushed yet"
    again.push({"t": [state(1)]})
    again.log_dir_moves.turn()
    assert again.log.directory == "/d2/t-0"


def test_the_copy_of_a_deleted_topic_is_deleted(rig: TwoDirectories) -> None:
    rig.write(b"a")
    rig.move()
    rig.close()
    again = TwoDirectories(rig.fs)
    again.push({}, type_=2)
    assert again.log_manager.all_logs() == again.log_manager.future_logs() == []


def test_a_failed_target_disk_leaves_the_log_in_place(rig: TwoDirectories) -> None:
    rig.write(b"a")
    rig.move()
    rig.log_manager.fail_directory(rig.log_manager.directories[1], OSError("gone"))
    assert rig.log_dir_moves.turn() == IDLE_MS
    assert rig.log_manager.forget_directory(rig.log_manager.directories[1]) == []
    assert rig.log_dir_moves.turn() is None
    rig.write(b"b")
    assert rig.log.directory == "/d1/t-0"


def test_a_disk_that_cannot_be_read_takes_its_directory_offline(
    rig: TwoDirectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_slice: MemoryFileSlice) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    rig.write(b"a")
    rig.move()
    monkeypatch.setattr(MemoryFileSlice, "read", fails)
    assert rig.log_dir_moves.turn() == IDLE_MS
    assert [directory.is_offline for directory in rig.log_manager.directories] == [True, False]


def test_a_log_that_cannot_be_copied_is_skipped_until_it_is_moved_again(
    rig: TwoDirectories, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails_for_one(source: Log, target: Log, max_bytes: int) -> int:
        if source.topic_partition == TP:
            raise ValueError("a bug")
        return catch_up(source, target, max_bytes)

    other = TopicPartition("u", 0)
    while (made := rig.log_manager.get_log(other)) is None or not made.directory.startswith("/d1"):
        other = TopicPartition(f"{other.topic}u", 0)
        rig.push({other.topic: [state(1, is_new=True)]})
    rig.move()
    rig.move(tp=other)
    monkeypatch.setattr(log_dir_moves, "catch_up", fails_for_one)
    rig.log_dir_moves.turn()
    assert rig.log_dir_moves.turn() is None
    assert caplog.text.count("cannot be copied") == 1
    moved = rig.log_manager.get_log(other)
    assert moved is not None
    assert (rig.log.directory, moved.directory) == ("/d1/t-0", f"/d2/{other.topic}-0")
    monkeypatch.undo()
    rig.move()
    rig.log_dir_moves.turn()
    assert rig.log.directory == "/d2/t-0"


def test_the_threads_move_a_log(rig: TwoDirectories) -> None:
    rig.write(b"a")
    rig.log_dir_moves.start()
    rig.move()
    rig.log_dir_moves.wake()
    while rig.log_manager.future_logs():
        rig.log_dir_moves.wake()
    rig.log_dir_moves.shutdown()
    assert rig.log.directory == "/d2/t-0"
