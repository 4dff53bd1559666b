"""Which cores the request threads (network processors, handlers and replica fetchers) run on, and how.

Where the interpreter has a global lock, one thread at a time runs Python. Passing the lock to another core wakes a
sleeping core each time; on one core it is a context switch. So the request threads are faster on one core, up to
batches of a producer's usual 16 KiB. Only much larger pieces make most of the work the kernel's, which copies bytes
without that lock and can use every core.

Rules
1. The mean size of the batches produced and fetched decides, in each interval (`next_placement`). The bytes
   replicated to and from other brokers count as well: followers fetch several times for a batch. While few bytes move,
   the threads are together and patient. Other threads are never confined. Neither are replica fetchers: they pass work
   to no other thread, and the cluster waits for their appends, so they run wherever a core is free.
2. Patient threads run under SCHED_BATCH: a woken thread runs once its waker sleeps. Otherwise the kernel would run it
   at once, only to find the interpreter's lock taken, and switch back. This answers a third more small requests.
3. Producers of full batches keep the cores busy, and there a patient thread waits for their time slices to end. Request
   threads are then scheduled as usual: half as many again 100 B records arrive, and 5 % more with acks=all and three
   replicas.
4. While clients read very much in large pieces, and little is written, the threads are patient on all cores. Such a
   reader takes all that is there before it sleeps, so a processor that runs only then finds more space in the socket.
   Four readers get 5 to 12 % more this way, at 20 % less CPU time. Why not for slower readers: small requests beside
   them would wait for time slices.
5. On an interpreter without a global lock no thread is confined. The threads are patient by the same rules: a handler
   that interrupts its waker would only wait for a lock that the waker holds.
6. Nothing is done on one core, or with `barnabas.cpu.affinity=none`.
7. Brokers on one machine take different cores, by broker id.

Threads: `review` is a periodic task, one at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.common.threads import HAS_GLOBAL_LOCK
from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry

AUTO = "auto"
REVIEW_INTERVAL_MS = 500
IDLE_INTERVAL_MS = 2_000  # after IDLE_REVIEWS in a row that found nothing to do: an idle broker should not wake up
IDLE_REVIEWS = 60
BUSY_BYTES = 4 << 20  # in one interval; copying fewer takes negligible time
READING_BYTES = 64 << 20  # in one interval
_NO_PRIORITY = os.sched_param(0)  # the only value that these policies allow
TOGETHER = ("data-plane-kafka-network-thread", "data-plane-kafka-request-handler")
REQUEST_THREADS = (*TOGETHER, "ReplicaFetcherThread")


class Moved(NamedTuple):
    """What a broker moved in an interval."""

    batches: int  # produced and fetched
    written: int  # bytes, of producers and as a follower
    read: int  # bytes, by clients
    copied: int  # bytes, by followers


class Placement(IntEnum):
    """Where request threads run and how they are scheduled; a greater value suits larger batches, or as large ones."""

    PATIENT = 0  # on one core; a woken thread does not interrupt its waker
    PROMPT = 1  # on one core
    APART = 2  # on all cores
    READING = 3  # on all cores, and patient


ON_ALL_CORES = (Placement.APART, Placement.READING)
PATIENTLY = (Placement.PATIENT, Placement.READING)
FROM_MEAN_BYTES = {Placement.PATIENT: 0, Placement.PROMPT: 8 << 10, Placement.APART: 64 << 10}
STAY_SHARE = 0.5  # a placement is kept down to this share of its mean


def next_placement(placement: Placement, moved: Moved) -> Placement:
    """Return the placement for the next interval, given what was moved in the last one."""
    size_bytes = moved.written + moved.read + moved.copied
    if size_bytes < BUSY_BYTES:
        return Placement.PATIENT
    found = max(
        candidate
        for candidate, mean_bytes in FROM_MEAN_BYTES.items()
        if size_bytes >= moved.batches * mean_bytes * (STAY_SHARE if placement >= candidate else 1)
    )
    is_reading = moved.written < BUSY_BYTES and moved.read >= READING_BYTES
    return Placement.READING if found is Placement.APART and is_reading else found


class RequestAffinity:
    """Confines the request threads to one core, or frees them."""

    def __init__(self, registry: Registry, broker_id: int, setting: str) -> None:
        self._cpus = os.sched_getaffinity(0)  # fixed before start
        one_cpu = {sorted(self._cpus)[broker_id % len(self._cpus)]}
        self._together = one_cpu if HAS_GLOBAL_LOCK else self._cpus  # fixed before start
        self.is_active = setting == AUTO and len(self._cpus) > 1  # fixed before start
        self.placement = Placement.PATIENT  # owner: review
        rows = (
            (catalogue.TOTAL_PRODUCE_REQUESTS_PER_SEC, catalogue.TOTAL_FETCH_REQUESTS_PER_SEC),
            (catalogue.BYTES_IN_PER_SEC, catalogue.REPLICATION_BYTES_IN_PER_SEC),
            (catalogue.BYTES_OUT_PER_SEC,),
            (catalogue.REPLICATION_BYTES_OUT_PER_SEC,),
        )
        self._meters = [[registry.meter(row) for row in some] for some in rows]  # of the fields of Moved
        self._seen = self._counts()  # owner: review
        self._idle_reviews = 0  # owner: review; how many in a row found no traffic
        self._placed: dict[threading.Thread, tuple[bool, int]] = {}  # owner: review; confined?, policy

    def review(self) -> int:
        """Measure the interval since the last review, and place the threads for the next one.

        Returns the milliseconds until the next review.
        """
        before, self._seen = self._seen, self._counts()
        last = self.placement
        if self._seen == before and self._placed and last is Placement.PATIENT:
            # Why no placement: what new threads of an idle broker inherited does not matter before they have work.
            self._idle_reviews += 1
            return IDLE_INTERVAL_MS if self._idle_reviews > IDLE_REVIEWS else REVIEW_INTERVAL_MS
        self._idle_reviews = 0
        moved = Moved(*[now - then for now, then in zip(self._seen, before, strict=True)])
        self.placement = next_placement(last, moved)
        if self.placement is not last or last is not Placement.APART:
            self._place()
        return REVIEW_INTERVAL_MS

    def _counts(self) -> Moved:
        """Return what was moved so far."""
        return Moved(*[sum(meter.count for meter in meters) for meters in self._meters])

    def _place(self) -> None:
        """Set the affinity and the policy of each thread of the process for which they have changed, or which is new.

        Why all of them, at each review: a new thread inherits the affinity of the thread that started it, and handlers
        start others (replica fetchers).
        """
        before, self._placed = self._placed, {}
        for thread in threading.enumerate():
            if thread.native_id is None:  # it has not begun
                continue
            placement = self.placement if thread.name.startswith(REQUEST_THREADS) else Placement.APART
            is_confined = placement not in ON_ALL_CORES and thread.name.startswith(TOGETHER)
            policy = os.SCHED_BATCH if placement in PATIENTLY else os.SCHED_OTHER
            self._placed[thread] = is_confined, policy
            if before.get(thread) != (is_confined, policy):
                with contextlib.suppress(OSError):  # the thread has ended, or the container forbids it
                    os.sched_setaffinity(thread.native_id, self._together if is_confined else self._cpus)
                    os.sched_setscheduler(thread.native_id, policy, _NO_PRIORITY)
