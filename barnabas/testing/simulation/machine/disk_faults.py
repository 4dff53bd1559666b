"""The faults of the disk of a simulated machine. They stay when a process ends; each operation checks them.

1. A full disk accepts the bytes that still fit, and refuses the rest (ENOSPC). Removed bytes free their space.
2. A failing disk refuses operations of some kinds below a path (EIO), each with a chance. A write that fails may have
   written a part.
3. A slow disk takes up to a time for a flush, and a hundredth of it for a write.
4. After a power failure, a file holds any mixture of the sectors that were written since its last flush, at a size
   between the old and the new one; the missing sectors read as zeros. Names that were not flushed with their
   directory are there or not, each directory as a whole.

Threads: any task.
"""

from __future__ import annotations

import errno
import os
import random
from typing import Final, NamedTuple

READ: Final = "read"
WRITE: Final = "write"
FLUSH: Final = "flush"
WRITES_PER_FLUSH: Final = 100
SECTOR_SIZES: Final = (512, 4096)


class Failing(NamedTuple):
    """Operations that fail: those of these kinds, on paths that begin so, each with a chance."""

    prefix: str
    operations: frozenset[str]
    chance: float


class DiskFaults:
    """See the module; the faults of one disk."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.hits = 0  # operations that failed: a process that ends after one has a reason
        self._left_bytes: int | None = None  # None: it is not full
        self._failing: tuple[Failing, ...] = ()
        self._slow_ns = 0
        self.is_sound = True  # nothing is wrong: saves the operations the questions

    @property
    def is_full(self) -> bool:
        """Whether there is an end to the space."""
        return self._left_bytes is not None

    def fill(self, left_bytes: int) -> None:
        """Leave so much space."""
        self._left_bytes = left_bytes
        self._changed()

    def fail(self, failing: Failing) -> None:
        """Let operations fail, beside those that fail already."""
        self._failing += (failing,)
        self._changed()

    def slow_down(self, flush_ns_max: int) -> None:
        """Let flushes take up to a time."""
        self._slow_ns = flush_ns_max
        self._changed()

    def repair(self) -> None:
        """End all faults."""
        self._left_bytes, self._failing, self._slow_ns = None, (), 0
        self._changed()

    def check(self, operation: str, path: str) -> None:
        """Raise OSError if an operation fails."""
        for failing in self._failing:
            if (
                operation in failing.operations
                and path.startswith(failing.prefix)
                and self.random.random() < failing.chance
            ):
                raise self._error(errno.EIO, path)

    def check_space(self, path: str) -> None:
        """Raise OSError if not even a name fits on the disk."""
        if self._left_bytes is not None and self._left_bytes <= 0:
            raise self._error(errno.ENOSPC, path)

    def grow(self, size_bytes: int) -> int:
        """Take space, or give back a negative amount; return how much there was."""
        if self._left_bytes is None:
            return size_bytes
        taken = min(size_bytes, max(0, self._left_bytes))
        self._left_bytes -= taken
        return taken

    def out_of_space(self, path: str) -> OSError:
        """Return the error of a write that did not fit."""
        return self._error(errno.ENOSPC, path)

    def part(self, size_bytes: int) -> int:
        """Return how much of a failing write was written."""
        return int(self.random.random() * size_bytes)

    def flush_ns(self) -> int:
        """Return how much longer a flush takes."""
        return int(self.random.random() * self._slow_ns) if self._slow_ns else 0

    def write_ns(self) -> int:
        """Return how much longer a write takes."""
        return self.flush_ns() // WRITES_PER_FLUSH

    def _error(self, number: int, path: str) -> OSError:
        self.hits += 1
        return OSError(number, os.strerror(number), path)

    def _changed(self) -> None:
        self.is_sound = self._left_bytes is None and not self._failing and not self._slow_ns


def torn(content: bytes, durable: bytes, rng: random.Random) -> bytes:
    """Return what a power failure leaves of a file (rule 4)."""
    if content == durable:
        return durable
    shorter, longer = sorted((len(content), len(durable)))
    how = rng.choice(("nothing", "in order", "any sectors"))
    if how == "nothing":
        return durable
    if how == "in order" and content.startswith(durable):
        return content[: rng.randint(shorter, longer)]
    size = rng.choice((shorter, longer, rng.randint(shorter, longer)))
    left = bytearray(durable[:size].ljust(size, b"\0"))
    sector = rng.choice(SECTOR_SIZES)
    chance = rng.random()
    for begin in range(0, min(size, len(content)), sector):
        end = min(begin + sector, size, len(content))
        if rng.random() < chance:
            left[begin:end] = content[begin:end]
    return bytes(left)
