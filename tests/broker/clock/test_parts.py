"""The parts of a process that wait by the moved clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.broker.clock.parts import Drain, EventPart, FetchPart, SchedulerPart, ShareStatePart
from barnabas.broker.purgatory import Deferred, Purgatory
from barnabas.broker.requests.answers import NoReply
from barnabas.broker.storage.scheduler import Scheduler
from barnabas.common.clock import FakeClock, MovedClock
from tests.broker.coordinators.persister.persister_rig import PersisterRig
from tests.support.waiting import eventually

DAY_MS = 86_400_000


def test_a_scheduler_runs_what_became_due() -> None:
    clock = MovedClock(FakeClock())
    scheduler = Scheduler(2, clock)
    part, ran = SchedulerPart(scheduler), threading.Event()
    scheduler.schedule_once("delete", ran.set, DAY_MS)
    assert (part.busy(), part.next_due_ms()) == ([], clock.monotonic_ms() + DAY_MS)
    clock.move_to(DAY_MS)
    part.moved(is_last=False)
    assert ran.wait(10)
    eventually("the task ends", lambda: part.busy() == [])
    assert part.next_due_ms() is None
    scheduler.shutdown()


def test_a_task_that_runs_is_busy() -> None:
    scheduler = Scheduler(1, FakeClock())
    part, may_end = SchedulerPart(scheduler), threading.Event()
    scheduler.schedule_once("slow", lambda: may_end.wait(10))
    eventually("the task runs", lambda: part.busy() == ["slow"])
    may_end.set()
    eventually("the task ends", lambda: part.busy() == [])
    scheduler.shutdown()


def test_after_the_last_move_every_periodic_task_runs() -> None:
    scheduler = Scheduler(1, FakeClock())
    part, runs = SchedulerPart(scheduler), threading.Semaphore(0)
    scheduler.schedule("retention", runs.release, DAY_MS, DAY_MS)
    part.moved(is_last=False)
    assert part.busy() == []
    for _ in range(2):
        part.moved(is_last=True)
        assert runs.acquire(timeout=10)
        eventually("the task ends", lambda: part.busy() == [])
    scheduler.shutdown()


def test_a_wait_for_records_ends() -> None:
    clock = MovedClock(FakeClock())
    purgatory = Purgatory("Fetch", clock, broker_id=0)
    purgatory.start()
    part, ended = FetchPart(purgatory), threading.Event()
    operation = Deferred(DAY_MS, NoReply)
    operation.bind(lambda _operation: ended.set())
    purgatory.try_complete_else_watch(operation, [])
    assert (part.busy(), part.next_due_ms()) == ([], None)
    clock.move_to(DAY_MS)
    part.moved(is_last=False)
    assert ended.wait(10)
    eventually("the reaper is done", lambda: part.busy() == [])
    purgatory.shutdown()


def test_an_event_is_busy_until_it_is_done() -> None:
    submitted: list[Callable[[object], None]] = []
    part = EventPart("tokens", submitted.append)
    part.moved(is_last=False)
    assert part.busy() == []
    part.moved(is_last=True)
    assert part.busy() == ["tokens"]
    submitted.pop()(None)
    assert (part.busy(), part.next_due_ms()) == ([], None)


class FakeWrites:
    """The end offsets of a shard's writes that are not committed."""

    def __init__(self, *waiting: int) -> None:
        self.waiting = list(waiting)

    def end_offset(self) -> int:
        return self.waiting[-1] if self.waiting else -1

    def is_written_to(self, end_offset: int) -> bool:
        return not self.waiting or self.waiting[0] > end_offset


def test_writes_that_were_there_are_waited_for_and_later_ones_are_not() -> None:
    drain, busy, idle = Drain(), FakeWrites(3, 5), FakeWrites()
    shards: Any = [busy, idle]
    assert not drain.is_dry(shards, True)
    busy.waiting, idle.waiting = [5, 9], [2]  # clients go on
    assert not drain.is_dry(shards, True)
    busy.waiting = [9]
    assert drain.is_dry(shards, True)
    assert drain.is_dry(shards, False)
    assert not drain.is_dry(shards, True), "after more work of the clock, these are waited for, too"
    assert drain.is_dry([], True), "the shards moved to another broker"


def test_share_state_is_unfinished_until_what_was_sent_is_answered() -> None:
    rig = PersisterRig()
    coordinator: Any = SimpleNamespace(has_jobs=False, writes=lambda: [rig.state.shard.writes])
    part = ShareStatePart(coordinator, rig.persister)
    part.moved(is_last=True)
    assert (part.busy(), part.unfinished(is_calm=True), part.next_due_ms()) == ([], [], None)
    coordinator.has_jobs = True
    assert part.busy() == ["share-state"]
    rig.initialize()
    assert part.unfinished(is_calm=False) == ()
    assert part.unfinished(is_calm=True) == ["share-state"]
    rig.run()
    rig.read()
    assert part.unfinished(is_calm=True) == [], "what came later is not waited for"
    assert part.unfinished(is_calm=False) == ()
    rig.state.manager.holds = True
    rig.state.write()
    rig.run()
    assert part.unfinished(is_calm=True) == ["share-state"]
    rig.state.manager.release()
    assert part.unfinished(is_calm=True) == []
