"""Why cells are never reached.

Threads: none.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from tests.simulation.coverage.cells import Cell

UNEXPLAINED: Final = "not explained"

#: (machine, state, event), each a pattern -> the reason. The first one that fits counts.
EXPLAINED: Final[tuple[tuple[Cell, str], ...]] = (
    (("consumer group", "*", "PartitionMetadata"), "a record of older releases, which is only removed"),
    (("consumer group", "*", "RegexTopics"), "no member of the load subscribes by a pattern"),
)


def reason_of(cell: Cell) -> str:
    """Return why a cell is not reached."""
    for patterns, reason in EXPLAINED:
        if all(fnmatchcase(part, pattern) for part, pattern in zip(cell, patterns, strict=True)):
            return reason
    return UNEXPLAINED
