"""The queues: order, bounds and rationed wake-ups."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

import pytest

from barnabas.broker import request_channel
from barnabas.broker.request_channel import SHED_NS, STALL_NS, QueueClosed, RequestChannel, RequestQueue, ResponseQueue
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.common.clock import FakeClock
from tests.support.waiting import eventually

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "10.0.0.1", 4711, "a-b-0-1")
TIMEOUT_S = 60


def request() -> Request:
    return Request(None, None, CONTEXT, memoryview(bytearray(b"frame")))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def _global_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_channel, "HAS_GLOBAL_LOCK", True)


def run_of(count: int) -> Request:
    """A run: requests that came together."""
    first = last = request()
    for _ in range(count - 1):
        last.following = last = request()
    return first


class Handlers:
    """Threads that take requests from a queue, and hold each until the test releases it."""

    def __init__(self, requests: RequestQueue, count: int) -> None:
        self.requests = requests
        self.taken: list[Request] = []
        self.let_go = threading.Semaphore(0)
        requests.add_handlers(count)
        self.threads = [threading.Thread(target=self._work) for _ in range(count)]
        for thread in self.threads:
            thread.start()
        eventually("all sleep", lambda: requests.sleeping_handlers() == count)

    def _work(self) -> None:
        while (item := self.requests.get()) is not None:
            self.taken.append(item)
            assert self.let_go.acquire(timeout=TIMEOUT_S)

    def stop(self) -> None:
        self.let_go.release(1000)
        self.requests.add_handlers(-len(self.threads))
        for _ in self.threads:
            self.requests.put(None)
        for thread in self.threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


def test_requests_come_out_in_order() -> None:
    requests = RequestQueue(10)
    items = [request() for _ in range(5)]
    requests.put_all(items)
    assert requests.waiting() == items
    assert requests.qsize() == 5
    assert requests.has_waiting()
    assert [requests.get() for _ in items] == items
    with pytest.raises(queue.Empty):
        requests.get(block=False)
    with pytest.raises(queue.Empty):
        requests.get(timeout=0.01)


def test_a_full_queue_blocks_its_putter() -> None:
    requests = RequestQueue(2)
    requests.put_all([request(), request()])
    with pytest.raises(queue.Full):
        requests.put(request(), block=False)
    with pytest.raises(queue.Full):
        requests.put(request(), timeout=0.01)
    third = request()
    putter = threading.Thread(target=requests.put, args=(third,))
    putter.start()
    requests.put(None)  # a sentinel is always accepted
    assert putter.is_alive()
    taken = [requests.get() for _ in range(3)]
    putter.join(TIMEOUT_S)
    assert not putter.is_alive()
    assert third in [*taken, requests.get()]


def test_a_closed_queue_takes_nothing_more() -> None:
    requests = RequestQueue(1)
    first = request()
    requests.put(first)
    refused: list[bool] = []

    def put() -> None:
        try:
            requests.put(request())
        except QueueClosed:
            refused.append(True)

    putter = threading.Thread(target=put)
    putter.start()
    requests.close()
    putter.join(TIMEOUT_S)
    assert refused == [True]
    assert requests.get() is first


def test_one_handler_is_woken_for_many_requests(clock: FakeClock) -> None:
    requests = RequestQueue(100, clock.monotonic_ns)
    handlers = Handlers(requests, 4)
    requests.put_all([request() for _ in range(10)])
    eventually("one took one", lambda: len(handlers.taken) == 1)
    assert requests.sleeping_handlers() == 3
    for number in range(2, 11):
        handlers.let_go.release()
        eventually("it takes the next", lambda number=number: len(handlers.taken) == number)  # type: ignore[misc]
    assert requests.sleeping_handlers() == 3
    handlers.stop()


def test_another_handler_is_woken_when_none_takes_requests(clock: FakeClock) -> None:
    requests = RequestQueue(100, clock.monotonic_ns)
    handlers = Handlers(requests, 4)
    requests.put_all([request() for _ in range(10)])
    eventually("one took one", lambda: len(handlers.taken) == 1)
    requests.wake_if_stalled()
    assert requests.sleeping_handlers() == 3, "too early"
    clock.advance_ns(STALL_NS)
    requests.wake_if_stalled()
    eventually("a second took one", lambda: len(handlers.taken) == 2)
    clock.advance_ns(STALL_NS)
    requests.put(request())
    eventually("a third took one", lambda: len(handlers.taken) == 3)
    assert requests.sleeping_handlers() == 1
    handlers.stop()


def test_a_superfluous_handler_goes_to_sleep(clock: FakeClock) -> None:
    requests = RequestQueue(100, clock.monotonic_ns)
    requests.add_handlers(2)
    requests.put_all([request() for _ in range(5)])
    requests.get()
    with pytest.raises(queue.Empty):
        requests.get(block=False)  # the other awake handler just took one
    clock.advance_ns(SHED_NS)
    requests.get(block=False)
    assert requests.qsize() == 3


def test_a_putter_that_waits_wakes_a_handler_that_went_to_sleep_meanwhile(clock: FakeClock) -> None:
    """1. A putter waits while no handler sleeps. 2. One sleeps, since the other is fast. 3. That one takes long."""
    requests = RequestQueue(1, clock.monotonic_ns)
    requests.add_handlers(2)
    putter = threading.Thread(target=requests.put_all, args=([request(), request(), request()],), daemon=True)
    putter.start()
    eventually("it waits", lambda: requests.blocked_putters() == 1)
    requests.get(block=False)
    eventually("it waits again", lambda: (requests.qsize(), requests.blocked_putters()) == (1, 1))
    taken: list[Request | None] = []
    second = threading.Thread(target=lambda: taken.append(requests.get()), daemon=True)
    second.start()
    eventually("the second handler sleeps", lambda: requests.sleeping_handlers() == 1)
    clock.advance_ns(STALL_NS)
    eventually("it is woken", lambda: len(taken) == 1)
    clock.advance_ns(SHED_NS)
    requests.get(block=False)
    putter.join(TIMEOUT_S)
    second.join(TIMEOUT_S)


def test_without_a_global_lock_handlers_for_half_of_the_cores_are_woken(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    monkeypatch.setattr(request_channel, "HAS_GLOBAL_LOCK", False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    requests = RequestQueue(100, clock.monotonic_ns)
    handlers = Handlers(requests, 4)
    requests.put_all([request() for _ in range(4)])
    eventually("three took one", lambda: len(handlers.taken) == 3)
    assert requests.sleeping_handlers() == 1
    clock.advance_ns(STALL_NS)
    requests.wake_if_stalled()
    eventually("the fourth took one", lambda: len(handlers.taken) == 4)
    handlers.stop()


def test_many_putters_and_handlers_lose_nothing() -> None:
    requests = RequestQueue(7)
    taken: list[Request] = []
    count = 5
    requests.add_handlers(count)

    def handle() -> None:
        while (item := requests.get()) is not None:
            taken.append(item)

    def put() -> None:
        for _ in range(300):
            requests.put(request())
            requests.wake_if_stalled()

    handlers = [threading.Thread(target=handle) for _ in range(count)]
    putters = [threading.Thread(target=put) for _ in range(4)]
    for thread in handlers + putters:
        thread.start()
    for thread in putters:
        thread.join(TIMEOUT_S)
    requests.add_handlers(-count)
    for _ in handlers:
        requests.put(None)
    for thread in handlers:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert len({id(item) for item in taken}) == 1200


class Bell:
    """Counts how often it is rung."""

    def __init__(self) -> None:
        self.rung = 0

    def __call__(self) -> None:
        self.rung += 1


def test_a_processor_is_woken_only_when_asleep_and_once() -> None:
    bell = Bell()
    responses = ResponseQueue(bell)
    items = [request() for _ in range(4)]
    responses.put(items[0])
    assert bell.rung == 0
    assert not responses.may_sleep(), "a response waits"
    assert responses.take_all() == items[:1]
    assert responses.may_sleep()
    responses.put(items[1])
    responses.put(items[2])
    assert bell.rung == 1
    assert not responses.add(items[3])
    assert responses.take_all() == items[1:]
    assert responses.take_all() == []
    assert responses.may_sleep()
    responses.interrupt()
    responses.interrupt()
    assert bell.rung == 2
    assert responses.may_sleep()
    responses.stay_awake()
    responses.put(items[0])
    assert bell.rung == 2
    assert responses.may_sleep() is False
    responses.take_all()
    assert responses.may_sleep()
    assert responses.add(items[0])
    responses.wake()
    assert bell.rung == 3


class Pooled:
    """A connection whose frame holds some of the memory pool."""

    released = 0

    def release_memory(self) -> None:
        self.released += 1


@pytest.mark.parametrize("is_answered_first", [True, False])
def test_answers_for_a_processor_that_has_ended_give_their_memory_back(is_answered_first: bool) -> None:
    responses, connection = ResponseQueue(Bell()), Pooled()
    first, last = run_of(2).run()
    first.goes_on = True
    first.connection = last.connection = connection  # type: ignore[assignment]
    if not is_answered_first:
        responses.end()
    for each in (first, last):
        responses.put(each)
    if is_answered_first:
        responses.end()
    assert connection.released == 1
    assert responses.take_all() == []


def test_the_channel_sums_its_queues() -> None:
    channel = RequestChannel(5)
    quiet: Callable[[], None] = Bell()
    one, two = ResponseQueue(quiet), ResponseQueue(quiet)
    channel.add_processor(1, one)
    channel.add_processor(2, two)
    with pytest.raises(AssertionError):
        channel.add_processor(2, two)
    one.put(request())
    channel.requests.put(request())
    assert (channel.request_queue_size(), channel.response_queue_size()) == (1, 1)
    assert channel.response_queue_sizes() == {1: 1, 2: 0}
    assert [item.connection_id for item in channel.requests.waiting()] == ["a-b-0-1"]
    assert len(one.waiting()) == 1
    assert channel.requests.blocked_putters() == 0
    channel.remove_processor(1)
    assert channel.response_queue_sizes() == {2: 0}


def test_a_request_has_the_context_of_its_connection() -> None:
    item = request()
    assert item.listener_name == item.security_protocol == "PLAINTEXT"
    assert (item.client_address, item.connection_id, item.principal) == ("10.0.0.1", "a-b-0-1", "User:ANONYMOUS")
    assert item.size_bytes == 5


def test_requests_that_came_together_count_as_several(clock: FakeClock) -> None:
    requests = RequestQueue(4, clock.monotonic_ns)
    first, second = run_of(3), run_of(2)
    requests.put_all([first, second])
    assert requests.qsize() == 5
    assert requests.waiting() == first.run() + second.run()
    assert len(set(requests.waiting())) == 5
    with pytest.raises(queue.Full):
        requests.put(request(), block=False)
    assert requests.get() is first
    assert requests.qsize() == 2
    requests.put(request(), block=False)
    assert requests.get() is second
    assert requests.qsize() == 1
