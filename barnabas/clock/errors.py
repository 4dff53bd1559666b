"""The errors of moving the clock of a cluster."""

from __future__ import annotations


class ClockError(Exception):
    """The clock cannot be moved, or a node does not finish its work: the reason in one line."""
