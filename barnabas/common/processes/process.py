"""The end of a server process: with its supervisor, after a fatal error, or by a signal.

A child of a local cluster must not outlive its supervisor, even after SIGKILL. On Linux, a process can request a signal
for the moment when the thread that started it ends: prctl(PR_SET_PDEATHSIG), prctl(2). The supervisor passes its pid in
an environment variable, so that the child can tell whether the supervisor ended before that request.

Why SIGKILL: it also ends a paused process, and one that hangs. For an orderly end, the supervisor sends SIGTERM. A
killed broker or controller loses nothing that it acknowledged.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import queue

T = TypeVar("T")

EXIT_USER_ERROR = 1
EXIT_FATAL = 2

PARENT_PID_VARIABLE = "BARNABAS_SUPERVISOR_PID"
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def die_with_supervisor() -> None:
    """Have the kernel kill this process when its supervisor, if any, ends; exit if that has ended already."""
    supervisor = os.environ.pop(PARENT_PID_VARIABLE, None)
    if supervisor is None:
        return
    # Why here and below: `barnabas up` imports this module, and starts faster without.
    from barnabas.common.processes.calls import signal_at_end_of_parent

    try:
        signal_at_end_of_parent(signal.SIGKILL)
    except OSError as error:
        raise SystemExit(f"prctl(PR_SET_PDEATHSIG) failed: {error.strerror}") from error
    if str(os.getppid()) != supervisor:
        raise SystemExit(f"the supervisor {supervisor} of this process has ended")


def end_at_once(thread_name: str, error: BaseException) -> None:
    """End the process because a thread died.

    Its work is no longer done, and memory may be ahead of the disk. Only a restart repairs both.
    """
    import logging

    logging.getLogger("barnabas.process").critical("The process ends because thread %s died: %s", thread_name, error)
    logging.shutdown()
    os._exit(EXIT_FATAL)


def catch_signals(endings: queue.SimpleQueue[T | int]) -> None:
    """Have SIGTERM and SIGINT put their numbers into the queue; called by the main thread.

    Why a thread that reads what C's signal handler writes: Python's handlers run on the main thread. The kernel may
    deliver a signal to any thread (it does so for one right after SIGCONT), and then nothing wakes a main thread that
    waits for the queue.
    """
    from barnabas.common.threads import ServiceThread

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in ENDING_SIGNALS:
        signal.signal(number, lambda *_: None)

    def dispatch() -> None:
        while True:
            for number in os.read(reader, 1):
                endings.put(number)

    ServiceThread("Signal Dispatcher", "signals", dispatch, daemon=True).start()
