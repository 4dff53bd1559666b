"""Long proofs within one process: a sample of them on the sources (`make unit`), all if compiled (`make compiled`).

`make test` does both. The code is the same, and much of it takes a third of the time once it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from barnabas.broker.storage.log import appender

T = TypeVar("T")
IS_COMPILED: Final = not str(appender.__file__).endswith(".py")


def sample(cases: Iterable[T], every: int) -> list[T]:
    """All cases on compiled code, else the first of each `every`."""
    found = list(cases)
    return found if IS_COMPILED else found[::every]
