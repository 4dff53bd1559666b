"""What may go wrong on a connection. Apart, because a kind of OSError cannot be compiled, and connections are."""

from __future__ import annotations


class NodeConnectionError(OSError):
    """The node could not be reached, did not answer in time, hung up, or sent something that is no answer."""
