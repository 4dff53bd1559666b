"""Members, appends, locks that run out and writes of state, each on a thread of its own.

No thread waits for another for ever, and each record is accepted once.
"""

from __future__ import annotations

import queue
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from barnabas.broker.requests.parking import Park
from tests.broker.share.share_rig import ACCEPT, LOCK_MS, RELEASE, ShareMember, ShareRig, acquired, errors
from tests.support.broker.parked import Waiting
from tests.support.threads import at_once

MEMBERS = 6
BATCHES = 60
RECORDS = 5  # of a batch
TIMEOUT_S = 30


class Parked(Waiting):
    """A parked request whose member can wait for it."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self.is_answered = threading.Event()

    def _go_on(self, park: Park) -> None:
        super()._go_on(park)
        if self.response is not None:
            self.is_answered.set()


class LatePersister:
    """Carries the operations of another persister out on a thread of its own, in their order."""

    def __init__(self, persister: Any) -> None:
        self._persister = persister
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __getattr__(self, name: str) -> Callable[..., None]:
        operation = getattr(self._persister, name)
        return lambda *about: self._calls.put(lambda: operation(*about))

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def close(self) -> None:
        self._calls.put(None)
        self._thread.join(TIMEOUT_S)


class Story:
    """What the members accepted, and whether everything was."""

    def __init__(self, rig: ShareRig) -> None:
        self.rig = rig
        self.lock = threading.Lock()
        self.accepted: Counter[int] = Counter()  # guarded by: lock
        self.is_done = threading.Event()
        self.member_count = MEMBERS  # guarded by: lock
        self.has_ended = threading.Event()

    def note(self, offsets: set[int]) -> None:
        with self.lock:
            self.accepted.update(offsets)
            if len(self.accepted) == BATCHES * RECORDS:
                self.is_done.set()

    def answer(self, response: Any) -> Any:
        if isinstance(response, Parked):
            assert response.is_answered.wait(TIMEOUT_S), "nobody answers"
            return response.response
        return response

    def consume(self, name: str, seed: int) -> None:
        """Fetch and acknowledge until everything is accepted; release some records, and hold some until they expire."""
        try:
            self._consume(name, random.Random(seed))
        finally:
            with self.lock:
                self.member_count -= 1
                if not self.member_count:
                    self.has_ended.set()

    def _consume(self, name: str, chance: random.Random) -> None:
        member = ShareMember(self.rig, name, waiting_type=Parked)
        while not self.is_done.is_set():
            waits_ms = 0 if member.epoch == 0 else 50
            held = acquired(self.answer(member.fetch(wait_ms=waits_ms, most=chance.choice((1, 5, 20)))))
            for first, last, count in held:
                kind = RELEASE if count == 1 and chance.random() < 0.2 else ACCEPT
                if count == 1 and chance.random() < 0.05:
                    continue  # until the lock runs out
                response = self.answer(member.acknowledge((first, last, kind)))
                if kind == ACCEPT and errors(response) == {0: 0}:
                    self.note(set(range(first, last + 1)))
        member.close()

    def produce(self) -> None:
        for _ in range(BATCHES):
            self.rig.append(RECORDS)

    def tick(self) -> None:
        """Let time pass until the last member has left."""
        while not self.has_ended.wait(0.001):
            self.rig.clock.advance_ms(LOCK_MS // 100)
            self.rig.purgatories.share_fetch.advance()


def test_each_record_is_accepted_once_however_threads_meet() -> None:
    rig = ShareRig(group_share_delivery_count_limit="10")
    late = LatePersister(rig.persister)
    rig.share_partitions._parts = type(rig.share_partitions._parts)(
        late,  # type: ignore[arg-type]
        rig.share_partitions.settings,
        rig.purgatories.share_fetch.timer,
        rig.share_partitions.wakes,
        rig.share_partitions.sensors,
    )
    story = Story(rig)
    members = [lambda n=n: story.consume(f"m{n}", n) for n in range(MEMBERS)]
    at_once(story.produce, story.tick, *members)
    late.close()
    assert set(story.accepted) == set(range(BATCHES * RECORDS))
    assert set(story.accepted.values()) == {1}
