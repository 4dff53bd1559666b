"""A rule of invariants.py that is broken. Not compiled: mypyc makes no native class of an exception."""

from __future__ import annotations


class ViolationError(AssertionError):
    """A rule is broken."""


def check(holds: bool, rule: str) -> None:
    if not holds:
        raise ViolationError(rule)
