"""A child of a supervisor does not outlive it."""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
import threading

import pytest

from barnabas.common.processes.process import PARENT_PID_VARIABLE, die_with_supervisor, take_signalled

TIMEOUT_S = 20
CHILD = """
import signal
from barnabas.common.processes.process import die_with_supervisor
die_with_supervisor()
print("asked", flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pause()
"""
SUPERVISOR = f"""
import os, signal, subprocess, sys
os.environ["{PARENT_PID_VARIABLE}"] = str(os.getpid())
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
assert child.stdout.readline() == b"asked\\n"
print(child.pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("is_paused", [False, True], ids=["running", "paused"])
def test_a_child_ends_with_a_killed_supervisor(is_paused: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        child = int(supervisor.stdout.readline())
        descriptor = os.pidfd_open(child)
        try:
            if is_paused:
                os.kill(child, signal.SIGSTOP)
            supervisor.kill()
            ended, _, _ = select.select([descriptor], [], [], TIMEOUT_S)
        finally:
            os.close(descriptor)
    assert ended


def test_a_process_without_supervisor_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PARENT_PID_VARIABLE, raising=False)
    die_with_supervisor()


def test_a_child_whose_supervisor_has_ended_does_not_start() -> None:
    environment = {**os.environ, PARENT_PID_VARIABLE: "1073741824"}
    child = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert child.stderr == "the supervisor 1073741824 of this process has ended\n"
    assert child.stdout == ""


def test_a_signal_delivered_to_another_thread_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: queue.SimpleQueue[int] = queue.SimpleQueue()
    before = signal.signal(signal.SIGUSR1, lambda number, _: signalled.put(number))
    other = threading.Event()

    def receive() -> None:
        other.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    monkeypatch.setattr("barnabas.common.processes.process.SIGNAL_CHECK_S", 0.01)
    thread = threading.Thread(target=receive)
    thread.start()
    try:
        other.set()
        assert take_signalled(signalled) == signal.SIGUSR1
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
