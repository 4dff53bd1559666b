"""What several threads use at once without a lock: each claim is tried with many threads.

On an interpreter with a global lock these tests pass easily. On a free-threaded one (`make test-free-threaded`) they
found the bugs that they now prevent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import GroupState
from barnabas.broker.coordinators.runtime.shard_lock import ShardLock
from barnabas.broker.monitoring.topic_stats import BrokerTopicStats
from barnabas.broker.network.connection import FrameReader
from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.replication.replication_quota import UNLIMITED, ReplicationQuota
from barnabas.broker.request_channel import RequestQueue, ResponseQueue
from barnabas.broker.requests.answers import NO_REPLY, Outcome
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.requests.request_log import KEPT, FailedRequest, RequestLog, _keep
from barnabas.broker.storage.log.leader_epochs import LeaderEpochCache
from barnabas.broker.storage.log.log import FetchIsolation
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.broker.storage.segments.time_index import TimeIndex
from barnabas.common.clock import SystemClock
from barnabas.metrics.meters import Counter
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol.records.batch import ControlType, end_txn_marker
from tests.support.broker.storage_bench import Bench
from tests.support.threads import at_once

TURNS = 3000


class Until:
    """Lets readers continue until the last writer is done."""

    def __init__(self, writers: int) -> None:
        self._left = writers
        self._lock = threading.Lock()

    def writer(self, write: Callable[[int], object], turns: int = TURNS) -> Callable[[], None]:
        """A job that writes a number of times."""

        def job() -> None:
            try:
                for turn in range(turns):
                    write(turn)
            finally:
                with self._lock:
                    self._left -= 1

        return job

    def reader(self, read: Callable[[], object]) -> Callable[[], None]:
        """A job that reads until the writers are done."""

        def job() -> None:
            while self._left:
                read()

        return job


def test_counts_are_exact_from_any_thread() -> None:
    counter, seen = Counter(), [0]
    until = Until(4)

    def check() -> None:
        count = counter.count
        assert count >= seen[0], "a count decreased"
        seen[0] = count

    at_once(*(until.writer(lambda _: counter.inc()) for _ in range(4)), until.reader(check))
    assert counter.count == 4 * TURNS


def test_topics_are_counted_during_a_scrape() -> None:
    registry = Registry()
    stats = BrokerTopicStats(registry)
    until = Until(3)

    def scrape() -> None:
        for _, instruments in registry.collect():
            for _, instrument in instruments:
                instrument.snapshot(1.0)  # type: ignore[union-attr]

    writers = [until.writer(lambda turn: stats.topic(f"t{turn % 50}").appended(100, 3), 600) for _ in range(3)]
    at_once(*writers, until.reader(scrape))
    assert sum(stats.topic(f"t{number}").totals()[2] for number in range(50)) == 3 * 600 * 3


def test_requests_are_recorded_during_a_scrape() -> None:
    registry = Registry()
    metrics = RequestMetrics(registry)
    until = Until(3)
    writers = [
        until.writer(
            lambda turn: metrics.recorder().record(f"Api{turn % 7}", turn % 3, (1, 2, 3, 4, 5, 6), 100, None, 10, "me")
        )
        for _ in range(3)
    ]
    at_once(*writers, until.reader(registry.collect), until.reader(metrics.finished))
    assert sum(metrics.finished().values()) == 3 * TURNS


def test_the_rings_of_requests_are_read_while_they_are_filled() -> None:
    log = RequestLog(RequestMetrics(Registry()))
    until = Until(3)

    def check() -> None:
        assert len(list(log.errors)) <= KEPT + 3

    failed = FailedRequest("Produce", 12, 1, None, "connection", ())
    at_once(*(until.writer(lambda _: _keep(log.errors, failed)) for _ in range(3)), until.reader(check))
    assert len(log.errors) == KEPT


def test_a_group_is_described_while_members_come_and_go() -> None:
    group = ConsumerGroup("g")
    member: Any = SimpleNamespace(is_reconciled_to=lambda _epoch: True)
    group.members["stays"] = member
    group.assignment_epoch = group.epoch
    until = Until(1)

    def change(turn: int) -> None:
        group.members[f"m{turn % 20}"] = member
        group.members.pop(f"m{turn * 7 % 20}", None)

    def check() -> None:
        assert group.state is GroupState.STABLE

    at_once(until.writer(change, 5 * TURNS), until.reader(check), until.reader(check))


def test_no_open_transaction_is_ever_stable() -> None:
    bench = Bench()
    target = bench.open()
    begun = [2**62]  # the offset at which the open transaction started
    until = Until(1)

    def transaction(turn: int) -> None:
        options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": turn, "is_transactional": True}
        batch = bench.batch("v", **options)
        begun[0] = first = target.log_end_offset
        target.append_as_leader(batch, leader_epoch=0)
        target.update_high_watermark(first + 1)
        begun[0] = 2**62
        marker = end_txn_marker(
            ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=bench.clock.wall_ms()
        )
        target.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        target.update_high_watermark(first + 2)

    def check() -> None:
        before = begun[0]
        stable = target.last_stable_offset
        assert stable <= before or begun[0] != before, "a reader could see records that may still be aborted"

    def read() -> None:
        end = target.log_end_offset
        data = target.read(max(0, end - 4), 1000, isolation=FetchIsolation.TXN_COMMITTED, min_one_message=True)
        assert data.last_stable_offset <= data.high_watermark <= data.log_end_offset

    at_once(until.writer(transaction, 1000), until.reader(check), until.reader(check), until.reader(read))
    target.invariants()


def test_an_event_posted_to_a_shard_is_never_left_unprocessed() -> None:
    failures: list[Exception] = []
    lock = ShardLock(failures.append)
    read: list[int] = []
    until = Until(3)

    def hold() -> None:
        with lock:
            lock.after_release(lambda: None)

    writers = [until.writer(lambda turn: lock.post(lambda: read.append(turn))) for _ in range(3)]
    at_once(*writers, until.reader(hold))
    assert len(read) == 3 * TURNS
    assert failures == []


class Waiting(DelayedOperation):
    """Is satisfied once the flag is set."""

    def __init__(self, flag: list[bool]) -> None:
        super().__init__(None)
        self.flag = flag
        self.answers = 0

    def try_complete(self) -> bool:
        return self.flag[0] and self.force_complete()

    def response(self) -> Outcome:
        return NO_REPLY


def test_a_state_change_finds_the_waiting_operation() -> None:
    """The interleaving of purgatory.py, rule 3: a watcher and a state change at the same time."""
    purgatory = Purgatory("Produce", SystemClock())
    for _ in range(400):
        flag, state_lock = [False], threading.Lock()
        operation = Waiting(flag)

        def change(flag: list[bool] = flag, state_lock: threading.Lock = state_lock) -> None:
            with state_lock:
                flag[0] = True
            purgatory.check_and_complete("key")

        def watch(operation: Waiting = operation) -> None:
            purgatory.try_complete_else_watch(operation, ["key"])

        at_once(watch, change)
        assert operation.is_completed, "no thread checks it again"


@pytest.mark.parametrize("handlers", [1, 3])
def test_every_request_is_taken_and_answered_once(handlers: int) -> None:
    requests = RequestQueue(20)
    requests.add_handlers(handlers)
    wakes = threading.Semaphore(0)
    responses = ResponseQueue(wakes.release)
    context = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 5, "connection")
    given = [Request(None, None, context, memoryview(b"")) for _ in range(TURNS)]
    answered: list[Request] = []

    def processor() -> None:
        """Act as a processor: put in batches, sleep only after `may_sleep`."""
        for first in range(0, TURNS, 3):
            requests.put_all(given[first : first + 3])
            while len(answered) < first + 3:
                answered.extend(responses.take_all())
                if len(answered) < first + 3 and responses.may_sleep():
                    while not wakes.acquire(timeout=0.001):
                        requests.wake_if_stalled()
                    responses.stay_awake()
        for _ in range(handlers):
            requests.put(None)
        while requests.has_waiting():
            requests.wake_if_stalled()
            wakes.acquire(timeout=0.001)

    def handler() -> None:
        while (request := requests.get()) is not None:
            responses.put(request)

    at_once(processor, *[handler] * handlers)
    assert sorted(map(id, answered)) == sorted(map(id, given))


def test_a_frame_is_read_while_the_next_one_is_cut() -> None:
    reader = FrameReader(1000)
    frame = b"\0\0\0\x64" + bytes(100)
    reader.receive(memoryview(frame * TURNS))
    for _ in range(20):
        taken = reader.next_frame()
        assert taken is not None

        def cut(taken: memoryview = taken) -> None:
            for _ in range(2000):
                assert taken[1:3] == b"\0\0"

        def cut_off() -> None:
            for _ in range(100):
                reader.next_frame()

        at_once(cut, cut_off)


def test_a_pair_that_is_replaced_whole_is_never_read_half_replaced() -> None:
    bench = Bench()
    epochs = LeaderEpochCache(bench.fs, "/data/leader-epoch-checkpoint", is_new=True)
    index = TimeIndex(bench.fs, "/data/00.timeindex", 0, 1 << 20, is_new=True)
    until = Until(1)

    def write(turn: int) -> None:
        epochs.assign(turn, turn)
        index.maybe_append(turn, turn)
        if turn % 50 == 49:
            epochs.truncate_from_start(turn)

    def check() -> None:
        assert all(epoch == start or start > epoch for epoch, start in epochs.entries)
        timestamp, offset = index.last_entry
        assert timestamp == offset or timestamp == -1, "two entries were mixed"

    at_once(until.writer(write), until.reader(check), until.reader(check))


def test_a_great_limit_is_read_while_it_is_replaced() -> None:
    quota = ReplicationQuota(SystemClock(), 11, 1000)
    slow = RequestLog(RequestMetrics(Registry()))
    until = Until(1)

    def write(turn: int) -> None:
        quota.set_limit(2**63 - 1 - turn)
        slow.set_slow_ms(2**63 - 1 - turn)

    def check() -> None:
        assert quota.limit == UNLIMITED
        assert not quota.is_exceeded()

    at_once(until.writer(write), until.reader(check), until.reader(check))
