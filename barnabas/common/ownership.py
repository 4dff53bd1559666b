"""Checks that only the owner thread calls a method.

A mutable attribute belongs to one thread (`# owner: processor`) or to a lock (`# guarded by: _lock`). Methods that use
attributes of the first kind begin with `assert self.owner.is_current()`: free with -O, about 50 ns otherwise.
"""

from __future__ import annotations

from threading import get_ident


class ThreadOwner:
    """Stores which thread owns an object's state.

    Without an owner, any thread may use the state: before the start, one thread builds everything.
    """

    __slots__ = ("_ident",)

    def __init__(self) -> None:
        self._ident = 0  # set once by the owner, when it starts

    def claim(self) -> None:
        """Make the calling thread the owner."""
        self._ident = get_ident()

    def release(self) -> None:
        """Give up the ownership: after the owner has ended, the thread that joined it may use the state."""
        self._ident = 0

    def is_current(self) -> bool:
        """Return whether the calling thread may use the owned state."""
        return self._ident == 0 or self._ident == get_ident()
