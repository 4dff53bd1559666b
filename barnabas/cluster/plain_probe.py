"""The two requests with which a start waits for nodes without security, written by hand.

Why: the client, and what it imports, would be 4 MB of a supervisor for the rest of its life, and a start takes longer
while three processes import at a time. A secured cluster needs the client: it logs in.

Threads: any.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from barnabas.common import net
from barnabas.common.clock import SystemClock
from barnabas.common.deadline import Deadline

ANSWER_BYTES_MAX: Final = 1 << 20  # another program may listen there
METADATA_VERSION: Final = 1  # of every release that a cluster can answer as
_METADATA: Final = (3, METADATA_VERSION)  # API key and version
_API_VERSIONS: Final = (18, 0)
_NO_TOPICS: Final = bytes(4)
_REQUEST: Final = struct.Struct(">ihhih")  # size, API key, version, correlation id, size of the client id
_NONE: Final = -1
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")


def ask_versions(host: str, port: int, timeout_s: float) -> None:
    """Return when a node has answered; raises OSError if it does not."""
    _ask(host, port, _API_VERSIONS, b"", timeout_s)


def listed_brokers(host: str, port: int, timeout_s: float) -> set[int]:
    """Return the ids in a broker's Metadata response, none while no broker is live; raises OSError without one."""
    try:
        return _brokers_in(_ask(host, port, _METADATA, _NO_TOPICS, timeout_s))
    except struct.error as error:
        raise ConnectionError(f"no Metadata response: {error}") from error


def _brokers_in(answer: bytes) -> set[int]:
    found: set[int] = set()
    position = 2 * _INT32.size  # behind the correlation id and the number of brokers
    for _ in range(_INT32.unpack_from(answer, _INT32.size)[0]):
        found.add(_INT32.unpack_from(answer, position)[0])
        position = _behind_text(answer, position + _INT32.size) + _INT32.size  # of the host, then the port
        position = _behind_text(answer, position)  # of the rack
    has_controller = _INT32.unpack_from(answer, position)[0] != _NONE
    return found if has_controller else set()  # no broker is live: those that were last are listed


def _behind_text(answer: bytes, position: int) -> int:
    size = _INT16.unpack_from(answer, position)[0]
    return int(position + _INT16.size + max(size, 0))  # no text has the size -1


def _ask(host: str, port: int, api: tuple[int, int], body: bytes, timeout_s: float) -> bytes:
    deadline = Deadline(SystemClock(), timeout_s * 1000)
    try:
        connection = net.connect(host, port, timeout_s)
    except UnicodeError as error:
        raise ConnectionError(f"no host can be {host!r}: {error}") from error
    with connection:
        connection.sendall(_REQUEST.pack(_REQUEST.size - _INT32.size + len(body), *api, 0, _NONE) + body)
        size = _INT32.unpack(_receive(connection, _INT32.size, deadline))[0]
        if not _INT32.size <= size <= ANSWER_BYTES_MAX:
            raise ConnectionError("the answer is not one of Kafka's protocol")
        return _receive(connection, size, deadline)


def _receive(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
    received = b""
    while len(received) < size:
        if deadline.is_expired():
            raise TimeoutError("the node sends its answer too slowly")
        connection.settimeout(deadline.remaining_s())
        some = connection.recv(size - len(received))
        if not some:
            raise ConnectionError("the node closed the connection")
        received += some
    return received
