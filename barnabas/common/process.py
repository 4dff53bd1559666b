"""How a server process ends, and what it tells the kernel about itself.

A child of a local cluster must not outlive its supervisor, whatever ends that one (SIGKILL too). Linux sends a
process the signal that it asked for when the thread that started it ends: prctl(PR_SET_PDEATHSIG), prctl(2). The
supervisor names itself in an environment variable, since the child has to ask, and has to notice if the parent was
gone before it could.

Why SIGKILL: it ends a paused process too, and one that hangs; an orderly end is what the supervisor's own SIGTERM is
for. A broker or controller that is killed loses nothing that it acknowledged.
"""

from __future__ import annotations

import os
import queue
import signal
from typing import TypeVar

T = TypeVar("T")

EXIT_USER_ERROR = 1
EXIT_FATAL = 2

PARENT_PID_VARIABLE = "BARNABAS_SUPERVISOR_PID"
SIGNAL_CHECK_S = 0.5
_PR_SET_PDEATHSIG = 1


def die_with_supervisor() -> None:
    """Ask to be killed at the supervisor's end, if this process has one; end at once if it is gone already."""
    supervisor = os.environ.pop(PARENT_PID_VARIABLE, None)
    if supervisor is None:
        return
    import ctypes  # Why here and below: `barnabas up` imports this module and starts sooner without

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise SystemExit(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(error)}")
    if str(os.getppid()) != supervisor:
        raise SystemExit(f"the supervisor {supervisor} of this process is gone")


def end_at_once(thread_name: str, error: BaseException) -> None:
    """End the process because a thread died: what that thread should do is no longer done, what is in memory may be
    ahead of the disk, and only a restart makes both right.
    """
    import logging

    logging.getLogger("barnabas.process").critical("The process ends because thread %s died: %s", thread_name, error)
    logging.shutdown()
    os._exit(EXIT_FATAL)


def take_signalled(signalled: queue.SimpleQueue[T]) -> T:
    """Take from a queue that signal handlers put into; for the main thread.

    Why not just get(): handlers run on the main thread only, but the kernel may hand a signal to any thread (it does
    when one comes right after SIGCONT). Then nothing wakes a main thread that sleeps, so it has to look by itself.
    """
    while True:
        try:
            return signalled.get(timeout=SIGNAL_CHECK_S)
        except queue.Empty:
            continue
