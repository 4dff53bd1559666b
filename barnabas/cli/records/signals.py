"""SIGTERM as an exception, as Ctrl-C is one, for commands that have something to finish: a commit, a flush.

librdkafka's Python client loses an exception that is raised in one of its callbacks. So a command holds the signals
while it lets the client serve callbacks: they take effect right after that.

The first signal gives both back to the system. So a second one ends the process, even if the client hangs.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

from barnabas.cli.errors import EndedBySignal

#: How long an interrupted command waits for the cluster.
INTERRUPTED_FLUSH_S: Final = 2


class Signals:
    """Raises KeyboardInterrupt and EndedBySignal, except in `held` blocks. All of it is on the main thread."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: type[BaseException] | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[Signals]:
        """Raise the exceptions in the block."""
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        # Why not an ignored one: a shell's background job ignores SIGINT
        before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
        try:
            for number in before:
                signal.signal(number, self._on_signal)
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Raise them after the block, which has to be short."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            raise waiting

    def _on_signal(self, number: int, _frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(each) == self._on_signal:
                signal.signal(each, signal.SIG_DFL)
        raised = EndedBySignal if number == signal.SIGTERM else KeyboardInterrupt
        if not self._is_held:
            raise raised
        self._waiting = raised
