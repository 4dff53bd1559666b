"""The type of the callbacks that receive a coordinator's answers.

A request to a coordinator is answered once its records are committed. By then the handler thread has long gone on to
other requests, so the answer cannot be a return value. Every such method takes one `Completion` instead. Methods that
can answer at once return their value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

T = TypeVar("T")

#: Receives the answer to one request; an error is part of the answer. It is called exactly once, on any thread, while
#: no lock of the coordinator is held, possibly before the method that took it returns. It must not block or raise.
Completion: TypeAlias = Callable[[T], object]
