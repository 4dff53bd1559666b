"""`broker/log_dir_failures.py`: only the partitions of a failed directory go offline; the controller gets a report."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.log_dir_failures import LogDirFailures
from barnabas.broker.storage.directories.log_directory import LogDirectory
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state
from tests.support.broker.parked import Waiting

TPS = [TopicPartition("flights", index) for index in range(4)]


class ThreeDirectories(BrokerRig):
    """A broker with three log directories that leads four partitions."""

    def __init__(self) -> None:
        super().__init__(log_dirs="/d1,/d2,/d3")
        self.reported: list[bytes] = []
        self.fatal: list[str] = []
        self.failures = LogDirFailures(self.log_manager, self.leadership, self.reported.append, self.fatal.append)
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
def rig() -> ThreeDirectories:
    return ThreeDirectories()


def test_only_the_partitions_of_the_failed_directory_go_offline(rig: ThreeDirectories) -> None:
    lost = rig.in_directory("/d1")
    assert 0 < len(lost) < 4
    failed = rig.fail("/d1")
    for tp in TPS:
        expected = ErrorCode.KAFKA_STORAGE_ERROR if tp.partition in lost else ErrorCode.NONE
        answer = rig.answer(write(tp), 9)
        assert answer.responses[0].partition_responses[0].error_code == expected
        answer = rig.answer(read(tp), 12)
        assert answer.responses[0].partitions[0].error_code == expected
    assert rig.reported == [failed.directory_id]
    assert rig.fatal == []
    assert {tp.partition for kind, tp, epoch in rig.listening.heard if kind == "resigned" and epoch is None} == lost
    assert [d.error_code for d in describe(rig)] == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]


def describe(rig: ThreeDirectories) -> list[Any]:
    results: list[Any] = rig.answer(DescribeLogDirsRequest(topics=None), 4).results
    return results


def write(tp: TopicPartition, **about: int) -> Any:
    return produce(batch(b"a"), topic=tp.topic, partition=tp.partition, **about)


def read(tp: TopicPartition, offset: int = 0, **about: int) -> Any:
    return fetch(offset, topic=tp.topic, partition=tp.partition, **about)


def test_waiting_requests_get_the_error(rig: ThreeDirectories) -> None:
    """An acks=all produce whose follower is away, and a fetch at the log's end."""
    lost = TPS[min(rig.in_directory("/d1"))]
    rig.push({"flights": [state(1, (1, 2), leader_epoch=1, partition_epoch=1) for _ in TPS]})
    produced = rig.answer(write(lost, acks=-1), 9)
    fetched = rig.answer(read(lost, max_wait_ms=5000), 12)
    assert isinstance(produced, Waiting)
    assert isinstance(fetched, Waiting)
    rig.fail("/d1")
    for waiting, part in ((produced, "partition_responses"), (fetched, "partitions")):
        assert waiting.response is not None
        (found,) = getattr(waiting.response.responses[0], part)
        assert found.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_offline_partition_stays_offline_until_a_restart(rig: ThreeDirectories) -> None:
    lost = min(rig.in_directory("/d1"))
    rig.fail("/d1")
    answer = rig.push({"flights": [state(2, (1, 2), leader_epoch=1, partition_epoch=1) for _ in TPS]})
    errors = {p.partition_index: p.error_code for t in answer.topics for p in t.partition_errors}
    assert errors[lost] == ErrorCode.KAFKA_STORAGE_ERROR
    assert errors[next(iter(rig.in_directory("/d2")))] == ErrorCode.NONE
    with pytest.raises(ApiError) as caught:
        rig.manager.partition(TPS[lost])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    rig.push({"new": [state(1, is_new=True)]})
    new = rig.log_manager.get_log(TopicPartition("new", 0))
    assert new is not None
    assert new.directory.startswith(("/d2", "/d3"))


def test_a_broker_without_directories_stops(rig: ThreeDirectories) -> None:
    rig.fail("/d1")
    rig.fail("/d2")
    assert rig.fatal == []
    rig.fail("/d3")
    assert rig.reported == [d.directory_id for d in rig.log_manager.directories[:2]]
    assert ["all log directories have failed" in reason for reason in rig.fatal] == [True]


def test_the_checkpoint_of_a_failed_directory_is_not_written(rig: ThreeDirectories) -> None:
    for tp in TPS:
        rig.answer(write(tp), 9)
    rig.high_watermarks.write(rig.manager.partitions())
    before = rig.fs.read_bytes("/d1/replication-offset-checkpoint")
    assert before.count(b"flights") > 0
    rig.fail("/d1")
    rig.high_watermarks.write(rig.manager.partitions())
    assert rig.fs.read_bytes("/d1/replication-offset-checkpoint") == before


def test_the_thread_handles_a_failure_noticed_on_another_thread(rig: ThreeDirectories) -> None:
    directory = rig.log_manager.directories[0]
    rig.failures.start()
    rig.log_manager.fail_directory(directory, OSError("gone"))
    rig.failures.shutdown()
    assert rig.reported == [directory.directory_id]
