"""The logs of simulated nodes, with virtual times.

Threads: any task.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.simulation.machine.scheduler import Scheduler


class _Line(logging.LogRecord):
    """A record that reads no clock and asks for no thread."""

    # Why not super().__init__: reading a clock is a point of the scheduler, where another task may get its turn.
    def __init__(
        self, name: str, level: int, pathname: str, lineno: int, msg: object, args: Any, exc_info: Any,
        func: str | None = None, sinfo: str | None = None, **_more: object,
    ) -> None:  # fmt: skip
        self.name = name
        self.levelno = level
        self.levelname = logging.getLevelName(level)
        self.pathname = pathname
        self.lineno = lineno
        self.msg = str(msg)
        self.args = args[0] if args and isinstance(args[0], dict) and args[0] else args
        self.exc_info = exc_info
        self.exc_text = None
        self.funcName = func or ""
        self.stack_info = sinfo


class _Writer(logging.Handler):
    """Writes lines with the virtual time and the task, and takes no lock."""

    def __init__(self, scheduler: Scheduler, file: TextIO) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s (%(name)s)"))
        self._scheduler = scheduler
        self._file = file

    def createLock(self) -> None:  # noqa: N802 (logging's name)
        """See logging.Handler."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """See logging.Handler."""
        now_s = self._scheduler.now_ns / 1e9
        self._file.write(f"{now_s:.6f} {self._scheduler.current} {self.format(record)}\n")
        return True


def keep_logs(scheduler: Scheduler, path: Path | None, level: str) -> None:
    """Write log lines to a file; without one, keep none. The history is the same with and without."""
    if path is None:
        logging.disable()
        return
    logging.setLogRecordFactory(_Line)
    root = logging.getLogger()
    root.addHandler(_Writer(scheduler, path.open("w", buffering=1)))
    root.setLevel(level)
