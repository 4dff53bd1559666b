"""The errors of local clusters."""

from __future__ import annotations


class ClusterError(Exception):
    """A problem that the user can fix; the message is one line."""


class ProcessDiedError(ClusterError):
    """A process ended or did not become ready in time; its log says why."""


class CancelledError(ClusterError):
    """Waiting ended because `is_cancelled` returned true."""
