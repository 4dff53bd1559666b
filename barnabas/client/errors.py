"""Errors of connections. A separate module, since mypyc cannot compile a subclass of OSError, and connections are."""

from __future__ import annotations


class NodeConnectionError(OSError):
    """The node could not be reached, did not respond in time, closed the connection, or sent an invalid response."""


class NodeLoginError(NodeConnectionError):
    """The other node did not accept this node's login, or did not prove who it is."""
