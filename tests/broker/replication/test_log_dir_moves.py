"""Moves between the log directories of a broker, step by step: what AlterReplicaLogDirs begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.dynamic_config import ResourceType
from barnabas.broker.replication import log_dir_moves
from barnabas.broker.replication.log_dir_moves import COPY_RATE, IDLE_MS
from barnabas.broker.storage.log import Log
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k34_alter_replica_log_dirs as wire
from barnabas.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from tests.support.broker_room import BrokerRoom, batch, fetch, produce, state, topic_id

TP = TopicPartition("t", 0)


class Room(BrokerRoom):
    """A broker with two log directories that leads one partition, which lies in /d1."""

    def __init__(self, fs: Any = None, **settings: str) -> None:
        super().__init__(fs, log_dirs="/d1,/d2", **settings)

    def lead(self) -> Room:
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
def room() -> Room:
    return Room().lead()


def test_a_log_moves_while_it_is_written_to(room: Room) -> None:
    d1, d2 = (directory.directory_id for directory in room.log_manager.directories)
    assert room.assignments.told == {(topic_id("t"), 0): d1}
    room.write(b"a", b"b")
    assert room.move() is ErrorCode.NONE
    assert room.described() == {"/d1": [(0, False)], "/d2": [(2, True)]}
    room.write(b"c")
    before = room.values()
    assert room.log_dir_moves.turn() == 0
    assert room.log.directory == "/d2/t-0"
    assert room.described() == {"/d1": [], "/d2": [(0, False)]}
    assert room.values() == before
    assert room.assignments.told == {(topic_id("t"), 0): d2}
    assert room.log_dir_moves.turn() is None
    room.write(b"d")
    assert room.log.high_watermark == room.log.log_end_offset == 4
    room.advance_ms(room.log.config.file_delete_delay_ms)
    assert [entry.name for entry in room.fs.listdir("/d1") if entry.is_dir] == []


def test_a_large_log_takes_several_turns(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "READ_BYTES", 500)
    for _ in range(20):
        room.write(b"x" * 200)
    room.move()
    turns = 1
    while room.log_dir_moves.turn() is not None:
        turns += 1
    assert turns >= 10
    assert room.log.directory == "/d2/t-0"


def test_the_rate_is_kept() -> None:
    room = Room().lead()
    room.set_rate("1000")
    for _ in range(5):
        room.write(b"x" * 500)
    room.move()
    room.clock.advance_ms(300)
    pause_ms = room.log_dir_moves.turn()
    assert pause_ms is not None
    assert 2000 < pause_ms < 3500
    room.set_rate("1000000000")
    room.move("/d1")
    room.clock.advance_ms(300)
    assert room.log_dir_moves.turn() == 0


def test_a_move_is_given_up_for_another(room: Room) -> None:
    room.write(b"a")
    room.move()
    assert room.move("/d1") is ErrorCode.NONE
    assert room.described() == {"/d1": [(0, False)], "/d2": []}
    assert room.log_dir_moves.turn() is None
    assert room.log.directory == "/d1/t-0"


def test_the_controller_knows_of_a_move_before_it_happens(room: Room) -> None:
    d2 = room.log_manager.directories[1].directory_id
    room.assignments.is_slow = True
    room.write(b"a")
    room.move()
    for _ in range(3):
        assert room.log_dir_moves.turn() is not None
    assert room.assignments.told == {(topic_id("t"), 0): d2}
    assert len(room.assignments.waiting) == 1, "it is told once"
    assert room.log.directory == "/d1/t-0", "and waits for the answer"
    room.write(b"b")
    room.push({"t": [state(1, partition_epoch=1)]})
    assert room.assignments.told == {(topic_id("t"), 0): d2}, "a push meanwhile does not tell of the old place"
    room.assignments.waiting[0](True)
    room.log_dir_moves.turn()
    assert room.log.directory == "/d2/t-0"
    assert room.log.log_end_offset == 2
    assert room.log_dir_moves.turn() is None


def test_a_move_that_the_controller_refuses_is_told_again(room: Room) -> None:
    room.assignments.is_slow = True
    room.move()
    room.log_dir_moves.turn()
    room.assignments.waiting.pop()(False)
    room.log_dir_moves.turn()
    assert len(room.assignments.waiting) == 1
    room.assignments.waiting.pop()(True)
    room.log_dir_moves.turn()
    assert room.log.directory == "/d2/t-0"


@pytest.mark.parametrize("is_accepted", [None, True, False])
@pytest.mark.parametrize("end", ["given up", "disk"])
def test_a_move_that_ends_after_it_was_told_is_taken_back(room: Room, end: str, is_accepted: bool | None) -> None:
    d1, d2 = room.log_manager.directories
    room.assignments.is_slow = True
    room.move()
    room.log_dir_moves.turn()
    assert room.assignments.told == {(topic_id("t"), 0): d2.directory_id}
    if end == "disk":
        room.log_manager.fail_directory(d2, OSError("gone"))
        room.log_manager.forget_directory(d2)
    else:
        room.move("/d1")
    if is_accepted is not None:
        room.assignments.waiting[0](is_accepted)
    assert room.log_dir_moves.turn() is None
    if is_accepted is not False:
        assert room.assignments.told == {(topic_id("t"), 0): d1.directory_id}
    assert room.log.directory == "/d1/t-0"


def test_a_move_to_a_third_directory_takes_the_first_one_back_or_overtakes_it() -> None:
    room = Room().lead()
    room.assignments.is_slow = True
    room.move()
    room.log_dir_moves.turn()
    room.move("/d1")
    room.move("/d2")
    room.log_dir_moves.turn()
    for on_done in room.assignments.waiting:
        on_done(True)
    room.log_dir_moves.turn()
    assert room.log.directory == "/d2/t-0"
    assert room.assignments.told == {(topic_id("t"), 0): room.log_manager.directories[1].directory_id}


def test_a_partition_that_is_deleted_while_its_move_is_told(room: Room) -> None:
    room.assignments.is_slow = True
    room.move()
    room.log_dir_moves.turn()
    room.stop_replica(TP, leader_epoch=-2, delete=True)
    room.assignments.waiting[0](True)
    assert room.log_dir_moves.turn() is None
    assert room.assignments.told == {}


def test_refusals(room: Room) -> None:
    assert room.move("/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert room.move(tp=TopicPartition("x" * 230, 0)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert room.move(tp=TopicPartition("unknown", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    room.push({"elsewhere": [state(2, (2, 3))]})
    assert room.move(tp=TopicPartition("elsewhere", 0)) is ErrorCode.REPLICA_NOT_AVAILABLE
    room.push({"elsewhere": [state(2, (1, 2, 3), partition_epoch=1, is_new=True)]})
    coming = room.log_manager.get_log(TopicPartition("elsewhere", 0))
    assert coming is not None
    assert coming.directory.startswith("/d2/"), "it was asked for before it came"
    room.log_manager.fail_directory(room.log_manager.directories[1], OSError("gone"))
    assert room.move("/d2") is ErrorCode.KAFKA_STORAGE_ERROR


def test_nothing_moves_into_a_cordoned_directory(room: Room) -> None:
    record = SimpleNamespace(
        resource_type=ResourceType.BROKER, resource_name="1", name="cordoned.log.dirs", value="/d2"
    )
    room.dynamic_config.apply_records([record], is_full=False)
    assert room.move() is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    results = room.answer(DescribeLogDirsRequest(topics=None), 5).results
    assert [(found.log_dir, found.is_cordoned) for found in results] == [("/d1", False), ("/d2", True)]
    for number in range(3):
        room.push({f"new-{number}": [state(1, is_new=True)]})
        made = room.log_manager.get_log(TopicPartition(f"new-{number}", 0))
        assert made is not None
        assert made.directory.startswith("/d1/")
    record.value = None
    room.dynamic_config.apply_records([record], is_full=False)
    assert room.move() is ErrorCode.NONE


def test_a_deleted_partition_moves_no_more(room: Room) -> None:
    room.write(b"a")
    room.move()
    room.stop_replica(TP, leader_epoch=-2, delete=True)
    assert room.log_dir_moves.turn() is None
    assert room.assignments.told == {}
    room.advance_ms(60_000)
    assert [entry.name for path in ("/d1", "/d2") for entry in room.fs.listdir(path) if entry.is_dir] == []


def test_a_move_goes_on_after_a_restart(room: Room) -> None:
    room.write(b"a")
    room.move()
    room.close()
    again = Room(room.fs)
    assert again.log_dir_moves.turn() == IDLE_MS, "not pushed to us yet"
    again.push({"t": [state(1)]})
    again.log_dir_moves.turn()
    assert again.log.directory == "/d2/t-0"


def test_the_copy_of_a_topic_that_is_gone_is_deleted(room: Room) -> None:
    room.write(b"a")
    room.move()
    room.close()
    again = Room(room.fs)
    again.push({}, type_=2)
    assert again.log_manager.all_logs() == again.log_manager.future_logs() == []


def test_a_disk_that_fails_under_the_copy_leaves_the_log_alone(room: Room) -> None:
    room.write(b"a")
    room.move()
    room.log_manager.fail_directory(room.log_manager.directories[1], OSError("gone"))
    assert room.log_dir_moves.turn() == IDLE_MS
    assert room.log_manager.forget_directory(room.log_manager.directories[1]) == []
    assert room.log_dir_moves.turn() is None
    room.write(b"b")
    assert room.log.directory == "/d1/t-0"


def test_the_threads_do_all_that(room: Room) -> None:
    room.write(b"a")
    room.log_dir_moves.start()
    room.move()
    room.log_dir_moves.wake()
    while room.log_manager.future_logs():
        room.log_dir_moves.wake()
    room.log_dir_moves.shutdown()
    assert room.log.directory == "/d2/t-0"
