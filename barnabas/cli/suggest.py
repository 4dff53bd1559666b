"""Suggests the existing name that is closest to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable

LIKENESS_MIN = 0.6
COMPARED_LENGTH_MAX = 249  # the longest topic name; comparing takes quadratic time


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, to append to an error about `name`; empty if no known name is similar."""
    if len(name) > COMPARED_LENGTH_MAX:
        return ""
    import difflib  # Why here: every command imports this module, and few words are mistyped

    found = difflib.get_close_matches(name, [each for each in known if each != name], 1, LIKENESS_MIN)
    return f"; did you mean {found[0]}?" if found else ""
