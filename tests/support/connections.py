"""Connections of which a test needs no more than that they are there."""

from __future__ import annotations

import socket

from barnabas.broker.connection import Connection
from barnabas.broker.request_channel import RequestContext
from barnabas.broker.transport import Anonymous, PlainTransport

CONTEXT = RequestContext("L", "PLAINTEXT", "127.0.0.1", 1, "id")
FRAME_SIZE_MAX = 10_000


def connection_over(sock: socket.socket) -> Connection:
    """A connection that no processor has; several may be over one socket. Why no stand-in: where it is compiled,
    nothing else is taken for a `Connection`.
    """
    return Connection(sock.fileno(), PlainTransport(sock), Anonymous(), CONTEXT, FRAME_SIZE_MAX)
