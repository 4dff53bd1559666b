"""Named threads."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from barnabas.common import threads
from barnabas.common.threads import ServiceThread


def test_a_thread_has_both_names() -> None:
    seen: list[str] = []

    def look() -> None:
        fd = os.open(f"/proc/self/task/{threading.get_native_id()}/comm", os.O_RDONLY)
        seen.extend((threading.current_thread().name, os.read(fd, 64).decode().strip()))
        os.close(fd)

    thread = ServiceThread("data-plane-kafka-request-handler-0", "req-handler-0-is-too-long", look)
    thread.start()
    thread.join()
    assert seen == ["data-plane-kafka-request-handler-0", "req-handler-0-i"]


def test_an_uncaught_exception_is_logged_and_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal: list[tuple[str, BaseException]] = []
    monkeypatch.setattr(threads, "_fatal_handler", None)
    threads.set_fatal_handler(lambda name, error: fatal.append((name, error)))

    def fail() -> None:
        raise ValueError("our mistake")

    with caplog.at_level(logging.CRITICAL):
        thread = ServiceThread("a-thread", "a-thread", fail)
        thread.start()
        thread.join()
    assert [(name, str(error)) for name, error in fatal] == [("a-thread", "our mistake")]
    assert "a-thread died" in caplog.text
