"""The writes of a shard: applied in log order, once they are committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites
from barnabas.broker.coordinators.runtime.shard_lock import ShardLock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.broker.coordinators.fake_log import FakeLog, FakeReplicaManager

TP = TopicPartition("topic", 0)
BATCH = build_batch([SimpleRecord(1, b"k", b"v")])


class Writer:
    """The writes of one shard; `seen` lists what was applied and how each write ended."""

    def __init__(self) -> None:
        self.replicas = FakeReplicaManager({TP: FakeLog()}, holds=True)
        self.lock = ShardLock(pytest.fail)
        self.writes = CommittedWrites(TP, self.replicas, self.lock)
        self.seen: list[object] = []

    def write(self, name: str) -> bool:
        with self.lock:
            return self.writes.append(
                BATCH, 1, 5000, lambda offset: self.seen.append((name, offset)),
                lambda error: self.seen.append((name, error.name)),
            )  # fmt: skip

    def locked(self, action: Callable[[], object]) -> None:
        with self.lock:
            action()


def test_writes_are_applied_in_order_when_they_are_committed() -> None:
    writer = Writer()
    assert writer.write("a")
    assert writer.write("b")
    assert (writer.seen, writer.writes.is_empty) == ([], False)
    writer.replicas.release()
    assert writer.seen == [("a", 0), ("a", "NONE"), ("b", 1), ("b", "NONE")]
    assert writer.writes.is_empty


def test_a_refused_write_has_not_happened() -> None:
    writer = Writer()
    writer.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert not writer.write("a")
    assert writer.seen == [("a", "COORDINATOR_NOT_AVAILABLE")]
    assert writer.writes.is_empty


def test_a_write_that_timed_out_is_applied_when_it_is_committed() -> None:
    writer = Writer()
    writer.write("a")
    writer.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
    assert writer.seen == [("a", "COORDINATOR_NOT_AVAILABLE")]
    writer.locked(writer.writes.catch_up)
    assert len(writer.seen) == 1
    writer.replicas.logs[TP].high_watermark = 1
    writer.locked(writer.writes.catch_up)
    assert writer.seen[1:] == [("a", 0)]


def test_an_action_waits_for_all_writes_so_far() -> None:
    writer = Writer()
    writer.locked(lambda: writer.writes.after_all(lambda error: writer.seen.append(error.name)))
    assert writer.seen == ["NONE"]
    writer.write("a")
    writer.locked(lambda: writer.writes.after_all(lambda error: writer.seen.append(error.name)))
    assert writer.seen == ["NONE"]
    writer.replicas.release()
    assert writer.seen[1:] == [("a", 0), ("a", "NONE"), "NONE"]


def test_an_action_after_a_write_that_timed_out_gets_its_error() -> None:
    writer = Writer()
    writer.write("a")
    writer.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
    writer.locked(lambda: writer.writes.after_all(lambda error: writer.seen.append(error.name)))
    assert writer.seen[-1] == "COORDINATOR_NOT_AVAILABLE"


def test_loaded_records_wait_for_the_high_watermark() -> None:
    writer = Writer()
    writer.replicas.logs[TP].append(BATCH)
    writer.writes.add_loaded(0, lambda: writer.seen.append("loaded"))
    assert writer.writes.has_loaded
    writer.write("a")
    writer.replicas.release()
    assert writer.seen == ["loaded", ("a", 1), ("a", "NONE")]
    assert not writer.writes.has_loaded


def test_abandoned_writes_end_with_an_error() -> None:
    writer = Writer()
    writer.write("a")
    writer.locked(writer.writes.abandon)
    assert writer.seen == [("a", "NOT_COORDINATOR")]
    writer.replicas.release()
    assert len(writer.seen) == 1


def test_writes_up_to_an_offset() -> None:
    writer = Writer()
    assert (writer.writes.end_offset(), writer.writes.is_written_to(7)) == (-1, True)
    writer.write("a")
    writer.write("b")
    assert writer.writes.end_offset() == 2
    assert [writer.writes.is_written_to(offset) for offset in (0, 1, 2)] == [True, False, False]
    writer.replicas.release()
    assert (writer.writes.end_offset(), writer.writes.is_written_to(2)) == (-1, True)


def test_thousands_of_actions_wait_for_one_write() -> None:
    # A write waits for a slow follower, and heartbeats that write nothing wait for it.
    writer = Writer()
    writer.write("a")
    count = 5000
    for number in range(count):
        writer.locked(lambda n=number: writer.writes.after_all(lambda _error: writer.seen.append(n)))
    writer.replicas.release()
    assert writer.seen == [("a", 0), ("a", "NONE"), *range(count)]
