"""Runs jobs on several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

JOIN_S = 60


def at_once(*jobs: Callable[[], object], join_s: float = JOIN_S) -> None:
    """Run each job on its own thread; raise the first failure, or AssertionError for a job that takes too long."""
    failures: list[BaseException] = []
    begin = threading.Barrier(len(jobs))

    def run(job: Callable[[], object]) -> None:
        begin.wait(JOIN_S)
        try:
            job()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(join_s)
        assert not thread.is_alive(), "stuck"
    if failures:
        raise failures[0]
