"""Owner-only methods that say so and check it.

A mutable attribute belongs to one thread (`# owner: processor`) or to a lock (`# guarded by: _lock`). Methods that
touch the first kind open with `assert self.owner.is_current()`: free when run with -O, some 50 ns otherwise.
"""

from __future__ import annotations

from threading import get_ident


class ThreadOwner:
    """Remembers which thread owns an object's state.

    Unclaimed, any thread counts as the owner: that is the time before start, when one thread builds everything.
    """

    __slots__ = ("_ident",)

    def __init__(self) -> None:
        self._ident = 0  # set once by the owner, when it starts

    def claim(self) -> None:
        """Make the calling thread the owner."""
        self._ident = get_ident()

    def release(self) -> None:
        """Give the state up: after the owner ended, whoever joined it may touch the rest."""
        self._ident = 0

    def is_current(self) -> bool:
        """Tell whether the calling thread may touch the owned state."""
        return self._ident == 0 or self._ident == get_ident()
