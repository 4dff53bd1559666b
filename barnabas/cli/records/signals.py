"""SIGTERM as an exception, for commands that have something to finish: a commit, a flush, a directory to remove."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from barnabas.cli.errors import EndedBySignal


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise EndedBySignal in the block when SIGTERM arrives, as Ctrl-C raises KeyboardInterrupt there."""

    def end(_number: int, _frame: object) -> None:
        raise EndedBySignal

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
