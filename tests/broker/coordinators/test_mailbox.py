"""The lock with a mailbox."""

from __future__ import annotations

import threading

import pytest

from barnabas.broker.coordinators.mailbox import Mailbox


def test_a_letter_posted_by_the_holder_is_read_after_release() -> None:
    box, seen = Mailbox(pytest.fail), []
    with box:
        box.post(lambda: seen.append("letter"))
        box.say(lambda: seen.append("said"))
        assert seen == []
    assert seen == ["said", "letter"]


def test_a_letter_posted_while_free_is_read_at_once() -> None:
    box, seen = Mailbox(pytest.fail), []
    box.post(lambda: (seen.append("letter"), box.say(lambda: seen.append("answer"))))
    assert seen == ["letter", "answer"]


def test_words_are_said_with_the_lock_released() -> None:
    box, seen = Mailbox(pytest.fail), []

    def enter_again() -> None:
        with box:
            seen.append("inside")

    with box:
        box.say(enter_again)
    assert seen == ["inside"]


def test_an_error_inside_releases_the_lock() -> None:
    box = Mailbox(pytest.fail)
    with pytest.raises(ValueError, match="x"), box:
        raise ValueError("x")
    with box:
        pass


def test_no_letter_is_lost_between_threads() -> None:
    box, counts = Mailbox(pytest.fail), {"read": 0}

    def read() -> None:
        counts["read"] += 1  # under the lock

    def work() -> None:
        for _ in range(2000):
            box.post(read)
            with box:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts["read"] == 8000


def test_a_letter_that_fails_is_told_and_the_next_is_read() -> None:
    seen: list[object] = []
    box = Mailbox(lambda error: seen.append(str(error)))

    def fail() -> None:
        raise ValueError("x")

    with box:
        box.post(fail)
        box.post(lambda: seen.append("next"))
    assert seen == ["x", "next"]


def test_words_that_fail_keep_nobody_from_hearing_theirs() -> None:
    box, seen = Mailbox(pytest.fail), []

    def fail() -> None:
        raise ValueError("x")

    with box:
        box.say(fail)
        box.say(lambda: seen.append("said"))
    assert seen == ["said"]
