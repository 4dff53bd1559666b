"""A log directory fails under a broker: its partitions go offline, the others go on, the controller hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.log_dir_failures import LogDirFailures
from barnabas.broker.storage.log_directory import LogDirectory
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from tests.support.broker_room import BrokerRoom, Waiting, batch, fetch, produce, state

TPS = [TopicPartition("flights", index) for index in range(4)]


class Room(BrokerRoom):
    """A broker with three log directories that leads four partitions."""

    def __init__(self) -> None:
        super().__init__(log_dirs="/d1,/d2,/d3")
        self.told: list[bytes] = []
        self.fatal: list[str] = []
        self.failures = LogDirFailures(self.log_manager, self.leadership, self.told.append, self.fatal.append)
        self.push({"flights": [state(1, is_new=True) for _ in TPS]})

    def fail(self, path: str) -> LogDirectory:
        directory = self.log_manager.directory_at(path)
        assert directory is not None
        self.log_manager.fail_directory(directory, OSError("gone"))
        self.failures.handle(directory)
        return directory

    def in_directory(self, path: str) -> set[int]:
        directory = self.log_manager.directory_at(path)
        assert directory is not None
        return {log.topic_partition.partition for log in self.log_manager.logs_in(directory)}


@pytest.fixture
def room() -> Room:
    return Room()


def test_partitions_of_a_failed_directory_go_offline_alone(room: Room) -> None:
    lost = room.in_directory("/d1")
    assert 0 < len(lost) < 4
    failed = room.fail("/d1")
    for tp in TPS:
        expected = ErrorCode.KAFKA_STORAGE_ERROR if tp.partition in lost else ErrorCode.NONE
        answer = room.answer(write(tp), 9)
        assert answer.responses[0].partition_responses[0].error_code == expected
        answer = room.answer(read(tp), 12)
        assert answer.responses[0].partitions[0].error_code == expected
    assert room.told == [failed.directory_id]
    assert room.fatal == []
    assert {tp.partition for kind, tp, epoch in room.listening.heard if kind == "resigned" and epoch is None} == lost
    assert [d.error_code for d in describe(room)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]


def describe(room: Room) -> list[Any]:
    results: list[Any] = room.answer(DescribeLogDirsRequest(topics=None), 4).results
    return results


def write(tp: TopicPartition, **about: int) -> Any:
    return produce(batch(b"a"), topic=tp.topic, partition=tp.partition, **about)


def read(tp: TopicPartition, offset: int = 0, **about: int) -> Any:
    return fetch(offset, topic=tp.topic, partition=tp.partition, **about)


def test_whoever_waits_hears_of_it(room: Room) -> None:
    """acks=all with a follower that is away, and a fetch at the end: both are answered."""
    lost = TPS[min(room.in_directory("/d1"))]
    room.push({"flights": [state(1, (1, 2), leader_epoch=1, partition_epoch=1) for _ in TPS]})
    produced = room.answer(write(lost, acks=-1), 9)
    fetched = room.answer(read(lost, max_wait_ms=5000), 12)
    assert isinstance(produced, Waiting)
    assert isinstance(fetched, Waiting)
    room.fail("/d1")
    for waiting, part in ((produced, "partition_responses"), (fetched, "partitions")):
        assert waiting.response is not None
        (found,) = getattr(waiting.response.responses[0], part)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_offline_partition_stays_offline_until_a_restart(room: Room) -> None:
    lost = min(room.in_directory("/d1"))
    room.fail("/d1")
    answer = room.push({"flights": [state(2, (1, 2), leader_epoch=1, partition_epoch=1) for _ in TPS]})
    errors = {p.partition_index: p.error_code for t in answer.topics for p in t.partition_errors}
    assert errors[lost] == ErrorCode.KAFKA_STORAGE_ERROR
    assert errors[next(iter(room.in_directory("/d2")))] == ErrorCode.NONE
    with pytest.raises(ApiError) as caught:
        room.manager.partition(TPS[lost])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    room.push({"new": [state(1, is_new=True)]})
    new = room.log_manager.get_log(TopicPartition("new", 0))
    assert new is not None
    assert new.directory.startswith(("/d2", "/d3"))


def test_the_last_directory_takes_the_broker_along(room: Room) -> None:
    room.fail("/d1")
    room.fail("/d2")
    assert room.fatal == []
    room.fail("/d3")
    assert room.told == [d.directory_id for d in room.log_manager.directories[:2]]
    assert ["all log directories have failed" in reason for reason in room.fatal] == [True]


def test_watermarks_of_a_failed_directory_are_left_as_they_were(room: Room) -> None:
    for tp in TPS:
        room.answer(write(tp), 9)
    room.high_watermarks.write(room.manager)
    before = room.fs.read_bytes("/d1/replication-offset-checkpoint")
    assert before.count(b"flights") > 0
    room.fail("/d1")
    room.high_watermarks.write(room.manager)
    assert room.fs.read_bytes("/d1/replication-offset-checkpoint") == before


def test_the_thread_handles_what_is_noticed_elsewhere(room: Room) -> None:
    directory = room.log_manager.directories[0]
    room.failures.start()
    room.log_manager.fail_directory(directory, OSError("gone"))
    room.failures.shutdown()
    assert room.told == [directory.directory_id]
