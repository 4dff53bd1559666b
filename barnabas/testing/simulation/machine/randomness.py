"""Randomness of the seed, where a program asks the operating system for some.

Threads: any task.
"""

from __future__ import annotations

import random

_RealRandom = random.Random
_source = _RealRandom(0)  # replaced by `seed_with`


def seed_with(seed: int) -> None:
    """Derive all that follows from a seed."""
    global _source
    _source = _RealRandom(f"{seed}/entropy")


def urandom(size: int) -> bytes:
    """See os.urandom."""
    return _source.randbytes(size)


class SeededRandom(_RealRandom):
    """See random.Random; one without a seed is seeded by `urandom`."""

    def __init__(self, x: int | float | str | bytes | bytearray | None = None) -> None:
        super().__init__(_source.getrandbits(128) if x is None else x)
