"""Named threads whose death is never silent.

Rules
1. Every thread of a process is a `ServiceThread`. Python knows it by Kafka's full name, the OS (`top -H`, gdb) by a
   short one, since Linux keeps 15 characters.
2. A target that raises is our bug: the traceback is logged and the process's fatal handler is called.

*Threads*: main calls `set_fatal_handler` once, before the first thread starts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

OS_NAME_LENGTH_MAX = 15

#: Whether this interpreter has a global lock (a free-threaded one has none): only one thread runs Python at a time.
HAS_GLOBAL_LOCK: bool = getattr(sys, "_is_gil_enabled", lambda: True)()

#: The greatest int for an attribute that is replaced while other threads read it. Compiled code keeps a greater one as
#: an object; without a global lock, a reader could find that object deleted.
SHARED_INT_MAX: Final = 2**62 - 1

log = logging.getLogger("barnabas.threads")

FatalHandler = Callable[[str, BaseException], None]

_fatal_handler: FatalHandler | None = None  # fixed before start


def set_fatal_handler(handler: FatalHandler | None) -> None:
    """Set the function that is called with a thread's name and its error when it dies of an uncaught exception."""
    global _fatal_handler
    _fatal_handler = handler


def set_os_thread_name(name: str) -> None:
    """Set the calling thread's name in `top -H`, cut to 15 characters; no effect where the OS does not support it."""
    path = f"/proc/self/task/{threading.get_native_id()}/comm"
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY)
        try:
            os.write(fd, name[:OS_NAME_LENGTH_MAX].encode("ascii", "replace"))
        finally:
            os.close(fd)


class ServiceThread(threading.Thread):
    """A named thread with one job.

    `name` is Kafka's full thread name, `os_name` the short form (15 characters) for the OS. By default it is not a
    daemon: its starter must stop it.
    """

    def __init__(self, name: str, os_name: str, target: Callable[[], None], *, daemon: bool = False) -> None:
        super().__init__(name=name, daemon=daemon)
        self._os_name = os_name  # fixed before start
        self._job: Callable[[], None] | None = target  # owner: this thread, once started

    def run(self) -> None:
        """Run the target; log an uncaught exception and call the fatal handler."""
        set_os_thread_name(self._os_name)
        job = self._job
        assert job is not None, "a thread runs once"
        self._job = None
        try:
            job()
        except BaseException as error:
            log.critical("thread %s died of an uncaught exception", self.name, exc_info=error)
            if _fatal_handler is not None:
                _fatal_handler(self.name, error)
