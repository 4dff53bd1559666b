"""Shrinks a failing life to a short story that still fails: fewer faults, fewer clients and brokers, less time.

1. A smaller life counts if it shows a problem of a kind that the first one showed, in the same order of its
   threads or in one of the next ones: without a fault, all that follows comes in another order.
2. Faults are removed in halves, quarters, … down to single ones (delta debugging). Then each number of the story is
   made smaller, and the faults come sooner. That is repeated until nothing helps, or the trials are used up.

Threads: none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from barnabas.testing.simulation.fault_decisions import Decision
from tests.simulation.shrinking.life import Life

#: The smallest numbers that make sense; 0 for all others.
LEAST: Final = {"brokers": 1, "controllers": 1, "seconds": 1, "partitions": 1}
#: Numbers that make a story neither longer nor shorter.
KEPT: Final = ("pause_ms",)

Problems = list[str]


def kinds_of(problems: Iterable[str]) -> set[str]:
    """Return the kinds of problems: their first lines without numbers; of an exception, the last line."""
    kinds: set[str] = set()
    for problem in problems:
        lines = problem.splitlines() or [""]
        line = lines[-1] if any(each.startswith("Traceback") for each in lines) else lines[0]
        kinds.add(re.sub(r"\d+", "#", line))
    return kinds


class Shrinker:
    """Shrinks one life; `run` returns the problems of a life."""

    def __init__(self, run: Callable[[Life], Problems], *, orders: int, trials_max: int) -> None:
        self._run = run
        self._orders = orders  # how many are tried
        self._trials_max = trials_max
        self._kinds: set[str] = set()
        self.trials = 0

    def shrink(self, life: Life) -> Life:
        """Return the shortest life found that fails as this one does, which must have its decisions."""
        assert life.decisions is not None, "the decisions are known after a run"
        self._kinds = kinds_of(self._run(life))
        before = None
        while life != before and self.trials < self._trials_max:
            before = life
            life = self._with_fewer_faults(life)
            for name in life.story:
                life = self._with_less(life, name)
            life = self._sooner(life)
        return life

    def _with_fewer_faults(self, life: Life) -> Life:
        size = len(life.decisions or ())
        while size:
            begin = 0
            while begin < len(life.decisions or ()):
                kept = [*(life.decisions or ())[:begin], *(life.decisions or ())[begin + size :]]
                smaller = self._failing(life._replace(decisions=kept))
                if smaller is None:
                    begin += size
                else:
                    life = smaller
            size //= 2
        return life

    def _with_less(self, life: Life, name: str) -> Life:
        found: Life | None = life
        while found is not None:
            life, found = found, None
            for number in _smaller(name, life.story[name]):
                found = self._failing(life._replace(story={**life.story, name: number}))
                if found is not None:
                    break
        return life

    def _sooner(self, life: Life) -> Life:
        sooner = [Decision(each.at_ms // 2, *each[1:]) for each in life.decisions or ()]
        if sooner == life.decisions:
            return life
        return self._failing(life._replace(decisions=sooner)) or life

    def _failing(self, life: Life) -> Life | None:
        """Return the life with an order in which it fails; None if there is none."""
        for order in range(life.order, life.order + self._orders):
            if self.trials >= self._trials_max:
                return None
            self.trials += 1
            tried = life._replace(order=order)
            if kinds_of(self._run(tried)) & self._kinds:
                return tried
        return None


def _smaller(name: str, number: object) -> Iterator[int]:
    least = LEAST.get(name, 0)
    if type(number) is int and number > least and name not in KEPT:
        yield from dict.fromkeys((least, (least + number) // 2, number - 1))
