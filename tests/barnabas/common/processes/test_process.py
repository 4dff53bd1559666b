"""A child of a supervisor does not outlive it. Tests common/processes/process.py and common/processes/calls.py."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from barnabas.common.processes.calls import signal_at_end_of_parent, yield_core
from barnabas.common.processes.process import PARENT_PID_VARIABLE, die_with_supervisor

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


def test_a_signal_that_does_not_exist_is_refused() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        signal_at_end_of_parent(1_000)


def test_a_thread_yields_the_core() -> None:
    yield_core()


def test_a_process_without_supervisor_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PARENT_PID_VARIABLE, raising=False)
    die_with_supervisor()


def test_a_child_whose_supervisor_has_ended_does_not_start() -> None:
    environment = {**os.environ, PARENT_PID_VARIABLE: "1073741824"}
    child = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 1
    assert child.stderr == "the supervisor 1073741824 of this process has ended\n"
    assert child.stdout == ""


def test_a_signal_delivered_to_another_thread_ends_the_wait_of_the_main_thread() -> None:
    """As for a signal right after SIGCONT; nothing else wakes a main thread that waits without a limit."""
    program = """
import queue, signal, threading
from barnabas.common.processes.process import catch_signals

endings = queue.SimpleQueue()
catch_signals(endings)
wait = threading.Event()
thread = threading.Thread(target=lambda: (wait.wait(0.1), signal.pthread_kill(threading.get_ident(), signal.SIGINT)))
thread.start()
print(endings.get() == signal.SIGINT)
signal.raise_signal(signal.SIGTERM)
print(endings.get() == signal.SIGTERM)
endings.put("a disk failed")
print(endings.get())
thread.join()
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (child.stdout, child.stderr) == ("True\nTrue\na disk failed\n", "")
