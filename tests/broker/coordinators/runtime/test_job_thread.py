"""Jobs run in order on one thread; one that raises does not stop the others."""

from __future__ import annotations

import logging
import threading

import pytest

from barnabas.broker.coordinators.runtime.job_thread import JobThread


def make_thread() -> JobThread:
    return JobThread("group-metadata-manager-0", "group-meta-0", logging.getLogger("barnabas.group"))


def test_jobs_run_in_order_on_the_thread_of_that_name() -> None:
    jobs, seen = make_thread(), []
    for number in range(3):
        jobs.put(lambda number=number: seen.append((number, threading.current_thread().name)))
    jobs.start()
    jobs.stop()
    assert seen == [(number, "group-metadata-manager-0") for number in range(3)]


def test_a_job_that_raises_is_logged_and_the_next_one_runs(caplog: pytest.LogCaptureFixture) -> None:
    jobs, seen = make_thread(), []
    jobs.put(lambda: 1 // 0)
    jobs.put(lambda: seen.append("ran"))
    jobs.start()
    jobs.stop()
    assert seen == ["ran"]
    [record] = caplog.records
    assert record.getMessage() == "a job of group-metadata-manager-0 failed"


def test_pending_jobs_run_on_the_callers_thread() -> None:
    jobs, seen = make_thread(), []
    jobs.put(lambda: seen.append(threading.current_thread()))
    assert not jobs.empty()
    jobs.run_pending()
    assert jobs.empty()
    assert seen == [threading.current_thread()]


def test_a_thread_that_never_started_can_be_stopped() -> None:
    make_thread().stop()
