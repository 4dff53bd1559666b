"""Which cores the request threads (network processors, handlers and replica fetchers) run on, and how.

Where the interpreter has a global lock, one thread at a time runs Python. A lock that goes from core to core wakes a
sleeping core each time; on one core, handing over is a context switch. So the request threads are quicker together, up
to batches of a producer's usual 16 KiB. Only where much larger pieces move is most of the work the kernel's, which
copies bytes without that lock and has a use for every core.

Rules
1. The mean size of the batches that come and go decides, anew in each interval (`Placement`); while few bytes move, the
   threads are together and patient. All other threads are never confined. Nor are replica fetchers: they hand over to
   no other thread, and the cluster waits for what they append, so they run wherever a core is free.
2. Patient threads run under SCHED_BATCH: one that is woken waits until the one that woke it sleeps. The kernel would
   else let it run at once, only to find the interpreter's lock taken, and switch back: a third more small requests are
   answered so.
3. Producers of full batches keep the cores busy themselves, and there a patient thread waits for their turns to end.
   Request threads are then scheduled as usual: of 100 B records half as many again arrive.
4. Nothing is done where the interpreter has no global lock, where there is one core, or with
   `barnabas.cpu.affinity=none`.
5. Brokers on one machine take different cores, by broker id.

Threads: `review` is a periodic task, one at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.broker.request_channel import HAS_GLOBAL_LOCK
from barnabas.metrics import catalogue

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry

AUTO = "auto"
REVIEW_INTERVAL_MS = 500
BUSY_BYTES = 4 << 20  # in one interval; fewer are copied in no time
_NO_PRIORITY = os.sched_param(0)  # the only one that these policies have
TOGETHER = ("data-plane-kafka-network-thread", "data-plane-kafka-request-handler")
REQUEST_THREADS = (*TOGETHER, "ReplicaFetcherThread")


class Placement(IntEnum):
    """Where request threads are and how they are scheduled; a greater one suits larger batches."""

    PATIENT = 0  # together, who is woken does not interrupt
    PROMPT = 1  # together
    APART = 2


FROM_MEAN_BYTES = {Placement.PATIENT: 0, Placement.PROMPT: 8 << 10, Placement.APART: 64 << 10}
STAY_SHARE = 0.5  # of that mean, a placement once reached is kept


def next_placement(placement: Placement, batches: int, size_bytes: int) -> Placement:
    """Decide for the next interval by what came and went in the last one."""
    if size_bytes < BUSY_BYTES:
        return Placement.PATIENT
    return max(
        candidate
        for candidate, mean_bytes in FROM_MEAN_BYTES.items()
        if size_bytes >= batches * mean_bytes * (STAY_SHARE if placement >= candidate else 1)
    )


class RequestAffinity:
    """Keeps the request threads together on one core, or lets them go."""

    def __init__(self, registry: Registry, broker_id: int, setting: str) -> None:
        self._cpus = os.sched_getaffinity(0)  # fixed before start
        self._one_cpu = {sorted(self._cpus)[broker_id % len(self._cpus)]}  # fixed before start
        self.is_active = HAS_GLOBAL_LOCK and setting == AUTO and len(self._cpus) > 1  # fixed before start
        self.placement = Placement.PATIENT  # owner: review
        self._batches = [registry.meter(row) for row in (
            catalogue.TOTAL_PRODUCE_REQUESTS_PER_SEC, catalogue.TOTAL_FETCH_REQUESTS_PER_SEC
        )]  # fmt: skip
        self._bytes = [registry.meter(row) for row in (catalogue.BYTES_IN_PER_SEC, catalogue.BYTES_OUT_PER_SEC)]
        self._seen = self._counts()  # owner: review

    def review(self) -> None:
        """Look at what happened since the last look, and place the threads for the next interval."""
        before, self._seen = self._seen, self._counts()
        last = self.placement
        self.placement = next_placement(last, self._seen[0] - before[0], self._seen[1] - before[1])
        if {last, self.placement} != {Placement.APART}:
            self._place()

    def _counts(self) -> tuple[int, int]:
        """Return batches produced and fetched so far, and their bytes."""
        return sum(meter.count for meter in self._batches), sum(meter.count for meter in self._bytes)

    def _place(self) -> None:
        """Put every thread of the process where it belongs.

        Why all of them, and again at each review: a thread starts where the one that started it is confined to, and
        handlers start others (replica fetchers).
        """
        for thread in threading.enumerate():
            placement = self.placement if thread.name.startswith(REQUEST_THREADS) else Placement.APART
            is_confined = placement is not Placement.APART and thread.name.startswith(TOGETHER)
            cpus = self._one_cpu if is_confined else self._cpus
            policy = os.SCHED_BATCH if placement is Placement.PATIENT else os.SCHED_OTHER
            if thread.native_id is not None:
                with contextlib.suppress(OSError):  # it ended meanwhile, or a container's rules forbid it
                    os.sched_setaffinity(thread.native_id, cpus)
                    os.sched_setscheduler(thread.native_id, policy, _NO_PRIORITY)
