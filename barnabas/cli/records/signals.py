"""SIGTERM as an exception, as Ctrl-C is one, for commands that have something to finish: a commit, a flush.

librdkafka's Python client loses an exception that is raised in one of its callbacks. So a command holds the signals
while it lets the client serve callbacks: they take effect right after that.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from barnabas.cli.errors import EndedBySignal


class Signals:
    """Raises KeyboardInterrupt and EndedBySignal, except in `held` blocks. All of it is on the main thread."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: type[BaseException] | None = None

    @contextlib.contextmanager
    def caught(self) -> Iterator[Signals]:
        """Raise the exceptions in the block."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for number, handler in before.items():
                if handler is not signal.SIG_IGN:  # a shell's background job ignores SIGINT
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
        raised = EndedBySignal if number == signal.SIGTERM else KeyboardInterrupt
        if not self._is_held:
            raise raised
        self._waiting = raised
