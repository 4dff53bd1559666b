"""JobThread: one thread that runs a coordinator's jobs in order.

Loading and unloading go through it, so that a shard is changed by one thread until it serves.
Source: the scheduler of Kafka's GroupMetadataManager and TransactionStateManager (4.3).
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable

from barnabas.common.threads import ServiceThread


class JobThread:
    """A queue of jobs and the thread that runs them; a job that raises is logged, the others still run."""

    def __init__(self, name: str, os_name: str, log: logging.Logger) -> None:
        self._log = log  # fixed before start
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = ServiceThread(name, os_name, self._work)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Run the jobs that wait, then end the thread, if it was started."""
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def put(self, job: Callable[[], None]) -> None:
        """Add a job."""
        self._jobs.put(job)

    def empty(self) -> bool:
        """Return whether no job waits."""
        return self._jobs.empty()

    def run_pending(self) -> None:
        """Run the jobs that wait on the caller's thread, for tests without threads."""
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                self._log.exception("a job of %s failed", self._thread.name)
