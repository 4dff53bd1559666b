"""Which of the names that there are may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LIKENESS_MIN = 0.6
COMPARED_LENGTH_MAX = 249  # of a topic's name: comparing takes as long as the square of it


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, to follow an error about `name`; empty if nothing is like it."""
    if len(name) > COMPARED_LENGTH_MAX:
        return ""
    found = difflib.get_close_matches(name, [each for each in known if each != name], 1, LIKENESS_MIN)
    return f"; did you mean {found[0]}?" if found else ""
