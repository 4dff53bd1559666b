"""A life of a cluster as a file: its seed, the order of its threads, the numbers of its story, and its faults.

Threads: none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.testing.simulation.fault_decisions import Decision, DecisionError


class LifeError(Exception):
    """The file of a life is wrong; the message is one line."""


class Life(NamedTuple):
    """A life; `decisions` is None if the seed draws them."""

    seed: int
    order: int  # of the threads; 0 is the seed's own
    story: dict[str, Any]
    decisions: list[Decision] | None

    def write(self, path: Path) -> None:
        """Store it."""
        decisions = None if self.decisions is None else [each.as_json() for each in self.decisions]
        path.parent.mkdir(parents=True, exist_ok=True)
        stored = {"seed": self.seed, "order": self.order, "story": self.story, "faults": decisions}
        path.write_text(json.dumps(stored, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Life:
        """Read a stored one. Raises LifeError."""
        try:
            stored = json.loads(path.read_text())
            faults = stored["faults"]
            decisions = None if faults is None else [Decision.from_json(each) for each in faults]
            return cls(int(stored["seed"]), int(stored["order"]), dict(stored["story"]), decisions)
        except (OSError, ValueError, KeyError, TypeError, DecisionError) as error:
            raise LifeError(f"{path} holds no life: {error}") from None
