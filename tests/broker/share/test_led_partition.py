"""A share partition on its leader: writes in order, one fetch at a time, one timer task, and its end."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.share_state.values import (
    NO_START_OFFSET,
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateWrite,
)
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.share.led_partition import DONE, LedSharePartition, Parts, client_error
from barnabas.broker.share.partition.values import Acknowledgement, Fetcher, Limits, Span
from barnabas.broker.share.sensors import ShareSensors
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ApiError, ErrorCode

KEY = SharePartitionKey("g", bytes(16), 0)
LIMITS = Limits(lock_duration_ms=1000)
NONE = ErrorCode.NONE


class HeldPersister:
    """Keeps what it is asked, until a test answers."""

    def __init__(self) -> None:
        self.reads: list[Callable[[StateRead], object]] = []
        self.writes: list[tuple[StateWrite, Callable[[ErrorCode], object]]] = []
        self.breaks = False

    def read(self, _key: SharePartitionKey, _leader_epoch: int, reply: Callable[[StateRead], object]) -> None:
        self.reads.append(reply)

    def write(self, _key: SharePartitionKey, write: StateWrite, reply: Callable[[ErrorCode], object]) -> None:
        if self.breaks:
            raise OSError("a bug")
        self.writes.append((write, reply))

    def end_write(self, error: ErrorCode = NONE) -> StateWrite:
        write, reply = self.writes.pop(0)
        reply(error)
        return write


class Rig:
    """A share partition that is being loaded."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.purgatory = Purgatory("ShareFetch", self.clock)
        self.persister: Any = HeldPersister()
        self.settings = SimpleNamespace(of=lambda _group: SimpleNamespace(limits=self.limits))
        self.limits = LIMITS
        self.start: int | ErrorCode = 0
        self.useless: list[LedSharePartition] = []
        self.woken: list[Any] = []
        wakes: Any = SimpleNamespace(wake=self.woken.extend)
        settings: Any = self.settings
        sensors = ShareSensors(Registry(self.clock))
        parts = Parts(self.persister, settings, self.purgatory.timer, wakes, sensors)
        own = sensors.of_partition(sensors.of_group())
        self.led = LedSharePartition(KEY, TopicPartition("t", 0), 5, parts, own, self.find_start, self.useless.append)
        self.led.load()

    def find_start(self) -> int:
        if isinstance(self.start, ErrorCode):
            raise ApiError(self.start)
        return self.start

    def loaded(self, start_offset: int = 0, *batches: StateBatch) -> None:
        self.persister.reads.pop()(StateRead(NONE, 3, start_offset, batches))

    def acquire(self, first: int, last: int, member: str = "m") -> None:
        fetch = object()
        offset = self.led.begin_fetch(fetch)
        assert offset is not None
        assert self.led.acquire(Fetcher(member, 500, 500), offset, [Span(first, last)], [])
        self.led.end_fetch(fetch)

    def accept(self, first: int, last: int) -> list[Any]:
        """Accept records; the list gets the outcome."""
        outcomes: list[Any] = []
        self.led.acknowledge("m", [Acknowledgement(first, last, [1])], outcomes.append)
        return outcomes

    def advance(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.purgatory.advance()


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.loaded()
    rig.woken.clear()
    return rig


def test_a_start_that_was_chosen_is_kept_before_anything_is_delivered() -> None:
    # Else the next leader would choose again: with `latest`, what came meanwhile would be skipped.
    rig = Rig()
    rig.start = 40
    rig.loaded(NO_START_OFFSET)
    assert rig.persister.end_write() == StateWrite(3, 5, 40, (), 0)
    assert rig.persister.writes == []
    assert rig.led.begin_fetch(object()) == 40


def test_a_start_that_was_kept_is_not_written_again(rig: Rig) -> None:
    assert rig.persister.writes == []


def test_it_is_read_once_and_wakes_those_who_wait() -> None:
    rig = Rig()
    rig.led.load()
    assert len(rig.persister.reads) == 1
    assert rig.led.is_loading
    assert rig.led.begin_fetch(object()) is None
    rig.loaded(7)
    assert rig.woken == [KEY]
    assert rig.led.begin_fetch(object()) == 7


def test_without_a_start_offset_it_is_asked_where_to_begin() -> None:
    rig = Rig()
    rig.start = 9
    rig.loaded(-1)
    assert rig.led.offsets == (9, 9)


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read_makes_it_useless(error: ErrorCode, given: ErrorCode) -> None:
    rig = Rig()
    rig.persister.reads.pop()(StateRead(error))
    assert rig.led.error == given
    assert rig.useless == [rig.led]
    assert rig.woken == [KEY]


def test_a_state_that_cannot_be_makes_it_useless() -> None:
    rig = Rig()
    rig.loaded(5, StateBatch(2, 3, 0, 1))
    assert rig.led.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.useless == [rig.led]


def test_a_start_that_is_not_known_yet_makes_it_useless() -> None:
    rig = Rig()
    rig.start = ErrorCode.OFFSET_NOT_AVAILABLE
    rig.loaded(-1)
    assert rig.led.error == ErrorCode.OFFSET_NOT_AVAILABLE


def test_one_fetch_at_a_time(rig: Rig) -> None:
    first, second = object(), object()
    assert rig.led.begin_fetch(first) == 0
    assert rig.led.begin_fetch(second) is None
    assert not rig.led.end_fetch(second)
    assert rig.led.begin_fetch(second) is None, "only the holder releases the fetch lock"
    assert rig.led.end_fetch(first), "another fetch waits for it"
    assert rig.led.begin_fetch(second) == 0
    assert not rig.led.end_fetch(second)
    rig.led.begin_fetch(first)
    rig.led.note_more()
    assert rig.led.end_fetch(first)


def test_an_acknowledgement_is_answered_when_it_is_written(rig: Rig) -> None:
    rig.acquire(0, 9)
    outcomes = rig.accept(0, 9)
    assert outcomes == []
    assert not rig.led.fence_if_idle(ErrorCode.LEADER_NOT_AVAILABLE)
    assert rig.persister.end_write() == StateWrite(3, 5, 0, (StateBatch(0, 9, 2, 1),), 10)
    assert outcomes == [DONE]
    assert rig.led.offsets == (10, 10)
    assert rig.woken == [KEY]
    assert rig.led.fence_if_idle(ErrorCode.LEADER_NOT_AVAILABLE)
    assert rig.led.error == ErrorCode.LEADER_NOT_AVAILABLE


def test_writes_are_passed_on_in_order(rig: Rig) -> None:
    rig.acquire(0, 9)
    for offset in (4, 2, 7):
        rig.accept(offset, offset)
    assert [write.batches[0].first_offset for write, _ in rig.persister.writes] == [4, 2, 7]


def test_a_reply_during_a_write_queues_the_next_write_behind_it(rig: Rig) -> None:
    rig.acquire(0, 9)
    order: list[int] = []

    def write(_key: Any, what: StateWrite, reply: Callable[[ErrorCode], object]) -> None:
        first = what.batches[0].first_offset
        order.append(first)
        if first == 0:
            rig.accept(5, 5)
            assert order == [0], "not before this write was passed on"
        reply(NONE)

    rig.persister.write = write
    assert rig.accept(0, 0) == [DONE]
    assert order == [0, 5]


def test_a_refused_acknowledgement_is_answered_at_once(rig: Rig) -> None:
    (outcome,) = rig.accept(0, 9)
    assert outcome.error == ErrorCode.INVALID_RECORD_STATE
    assert rig.persister.writes == []


def test_after_a_failed_write_the_member_holds_its_records(rig: Rig) -> None:
    rig.acquire(0, 9)
    outcomes = rig.accept(0, 9)
    rig.persister.end_write(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert outcomes[0].error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [holding.member_id for holding in rig.led.holdings()] == ["m"]
    rig.advance(1000)
    assert rig.led.holdings() == [], "its lock still runs out"


def test_a_write_of_state_that_was_deleted_makes_it_useless(rig: Rig) -> None:
    rig.acquire(0, 9)
    outcomes = rig.accept(0, 9)
    rig.persister.end_write(ErrorCode.INVALID_REQUEST)
    assert outcomes[0].error == rig.led.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert rig.useless == [rig.led]


def test_a_bug_of_the_persister_answers_the_member(rig: Rig) -> None:
    rig.acquire(0, 9)
    rig.persister.breaks = True
    (outcome,) = rig.accept(0, 9)
    assert outcome.error == ErrorCode.UNKNOWN_SERVER_ERROR
    rig.persister.breaks = False
    rig.accept(0, 9)
    assert len(rig.persister.writes) == 1


@pytest.mark.parametrize("error", [ErrorCode.FENCED_STATE_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_fenced_write_makes_it_useless(rig: Rig, error: ErrorCode) -> None:
    rig.acquire(0, 9)
    outcomes = rig.accept(0, 9)
    rig.persister.end_write(error)
    assert outcomes[0].error == client_error(error)
    assert rig.useless == [rig.led]
    assert rig.led.begin_fetch(object()) is None


def test_a_lock_that_runs_out_is_written_and_wakes(rig: Rig) -> None:
    rig.acquire(0, 4)
    rig.advance(400)
    rig.acquire(5, 9, "n")
    rig.advance(599)
    assert rig.persister.writes == []
    rig.advance(1)
    assert rig.persister.end_write().batches == (StateBatch(0, 4, 0, 1),)
    assert rig.woken == [KEY]
    assert rig.led.sensors.lock_timeouts.count == 5
    rig.advance(400)
    assert rig.persister.end_write().batches == (StateBatch(5, 9, 0, 1),)
    assert len(rig.purgatory.timer) == 0


def test_there_is_one_timer_task_however_many_locks(rig: Rig) -> None:
    for first in range(0, 50, 5):
        rig.acquire(first, first + 4)
        rig.advance(1)
    assert len(rig.purgatory.timer) == 1
    rig.accept(0, 49)
    rig.persister.end_write()
    rig.advance(1000)
    assert len(rig.purgatory.timer) == 0
    assert rig.persister.writes == []


def test_a_shorter_lock_runs_out_earlier(rig: Rig) -> None:
    rig.acquire(0, 4)
    rig.limits = Limits(lock_duration_ms=100)
    rig.acquire(5, 9)
    rig.advance(100)
    assert rig.persister.end_write().batches == (StateBatch(5, 9, 0, 1),)
    rig.advance(900)
    assert rig.persister.end_write().batches == (StateBatch(0, 4, 0, 1),)


def test_a_fenced_one_has_no_timer_task_and_keeps_its_first_error(rig: Rig) -> None:
    rig.acquire(0, 4)
    rig.led.fence(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    rig.led.fence(ErrorCode.LEADER_NOT_AVAILABLE)
    assert rig.led.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(rig.purgatory.timer) == 0


def test_a_member_that_leaves(rig: Rig) -> None:
    outcomes: list[Any] = []
    rig.led.release("m", outcomes.append)
    assert outcomes == [DONE]
    rig.acquire(0, 4)
    rig.led.release("m", outcomes.append)
    assert rig.persister.end_write().batches == (StateBatch(0, 4, 0, 1),)
    assert outcomes == [DONE, DONE]
