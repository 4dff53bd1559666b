"""Connections without a processor, for tests."""

from __future__ import annotations

import socket

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.transport import PlainTransport
from barnabas.broker.requests.request import RequestContext

CONTEXT = RequestContext("L", "PLAINTEXT", "127.0.0.1", 1, "id")
FRAME_SIZE_MAX = 10_000


def connection_over(sock: socket.socket) -> Connection:
    """A connection without a processor; several may share one socket.

    Why not a fake: compiled code accepts only a real `Connection`.
    """
    return Connection(sock.fileno(), PlainTransport(sock), None, CONTEXT, FRAME_SIZE_MAX)
