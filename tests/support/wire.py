"""A raw connection that sends and receives frames, for requests that no client library would send."""

from __future__ import annotations

import socket
import struct

HOST = "127.0.0.1"
_METADATA_KEY, _METADATA_VERSION = 3, 1
_NO_TOPICS = struct.pack(">i", 0)


class RawConnection:
    """A TCP connection for frames (a 4-byte size, then that many bytes). Used by one thread."""

    def __init__(self, port: int, host: str = HOST, timeout_s: float = 15) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes without a frame."""
        self._socket.sendall(data)

    def send_frame(self, payload: bytes) -> None:
        """Send a frame with this payload."""
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def receive_frame(self) -> bytes | None:
        """The payload of the next frame; None if the server closes or resets the connection instead."""
        try:
            size = self._receive(4)
            return None if size is None else self._receive(struct.unpack(">i", size)[0])
        except ConnectionError:
            return None

    def request(self, payload: bytes) -> bytes | None:
        """Send a frame and return the payload of the response; None if the connection is closed instead."""
        try:
            self.send_frame(payload)
        except ConnectionError:
            return None
        return self.receive_frame()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, size: int) -> bytes | None:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                return None
            received += chunk
        return bytes(received)


def request_header(api_key: int, api_version: int, correlation_id: int = 1) -> bytes:
    """A request header of version 1 without a client id."""
    return struct.pack(">hhih", api_key, api_version, correlation_id, -1)


def is_serving(port: int) -> bool:
    """Whether the broker on this port responds to Metadata with at least one broker."""
    return listed_brokers(port) > 0


def listed_brokers(port: int) -> int:
    """The number of brokers in the Metadata response of the broker on this port; 0 while it does not respond."""
    try:
        with RawConnection(port) as connection:
            answer = connection.request(request_header(_METADATA_KEY, _METADATA_VERSION) + _NO_TOPICS)
    except OSError:
        return 0
    return 0 if answer is None else int(struct.unpack_from(">i", answer, 4)[0])
