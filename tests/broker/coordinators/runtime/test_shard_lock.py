"""The lock of a shard: events, and actions after its release (`coordinators/runtime/completion.py`)."""

from __future__ import annotations

import threading

import pytest

from barnabas.broker.coordinators.runtime.shard_lock import ShardLock


def test_an_event_posted_by_the_holder_runs_after_release() -> None:
    lock, seen = ShardLock(pytest.fail), []
    with lock:
        lock.post(lambda: seen.append("event"))
        lock.after_release(lambda: seen.append("action"))
        assert seen == []
    assert seen == ["action", "event"]


def test_an_event_posted_to_a_free_lock_runs_at_once() -> None:
    lock, seen = ShardLock(pytest.fail), []
    lock.post(lambda: (seen.append("event"), lock.after_release(lambda: seen.append("answer"))))
    assert seen == ["event", "answer"]


def test_actions_run_with_the_lock_released() -> None:
    lock, seen = ShardLock(pytest.fail), []

    def enter_again() -> None:
        with lock:
            seen.append("inside")

    with lock:
        lock.after_release(enter_again)
    assert seen == ["inside"]


def test_an_error_inside_releases_the_lock() -> None:
    lock = ShardLock(pytest.fail)
    with pytest.raises(ValueError, match="x"), lock:
        raise ValueError("x")
    with lock:
        pass


def test_no_event_is_lost_between_threads() -> None:
    lock, counts = ShardLock(pytest.fail), {"read": 0}

    def read() -> None:
        counts["read"] += 1  # under the lock

    def work() -> None:
        for _ in range(2000):
            lock.post(read)
            with lock:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts["read"] == 8000


def test_a_failing_event_is_handled_and_the_next_one_runs() -> None:
    seen: list[object] = []
    lock = ShardLock(lambda error: seen.append(str(error)))

    def fail() -> None:
        raise ValueError("x")

    with lock:
        lock.post(fail)
        lock.post(lambda: seen.append("next"))
    assert seen == ["x", "next"]


def test_a_failing_action_does_not_stop_the_next() -> None:
    lock, seen = ShardLock(pytest.fail), []

    def fail() -> None:
        raise ValueError("x")

    with lock:
        lock.after_release(fail)
        lock.after_release(lambda: seen.append("action"))
    assert seen == ["action"]
