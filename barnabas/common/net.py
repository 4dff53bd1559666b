"""Sockets and addresses, for our listeners and clients.

*Threads*: any; this module has no state.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from typing import Final

#: socket.send.buffer.bytes and the like: leave the size to the kernel.
DEFAULT_BUFFER_SIZE: Final = -1
_LOOPBACK_BYTE: Final = 127


class AddressError(OSError):
    """An address cannot be used; the message is one line for the user."""


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int, backlog: int, receive_buffer_bytes: int = DEFAULT_BUFFER_SIZE) -> socket.socket:
    """Open a non-blocking listening socket; an empty host means all interfaces.

    Raises AddressError when the address is taken, unknown or not allowed.
    """
    shown = format_address(host or "0.0.0.0", port)
    try:
        family, address = _resolve(host, port)
        server = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise AddressError(f"cannot listen on {shown}: {_reason(error)}") from error
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes != DEFAULT_BUFFER_SIZE:  # before listen: it sets the window scale
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        server.bind(address)
        server.listen(backlog)
        server.setblocking(False)
    except OSError as error:
        server.close()
        raise AddressError(f"cannot listen on {shown}: {_reason(error)}") from error
    return server


def configure_accepted(accepted: socket.socket, send_buffer_bytes: int = DEFAULT_BUFFER_SIZE) -> None:
    """Set a client's socket to non-blocking, TCP_NODELAY and SO_KEEPALIVE."""
    accepted.setblocking(False)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes != DEFAULT_BUFFER_SIZE:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


def close_quietly(sock: socket.socket) -> None:
    """Close a socket in any state, without an error."""
    with contextlib.suppress(OSError):
        sock.close()


def is_hung_up(sock: socket.socket) -> bool:
    """Return whether the peer sends no more, or the connection is broken; what it sent before may not be read yet."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))


def can_be_resolved(host: str) -> bool:
    """Return whether a text is an IP address or the name of a host; may ask a name server."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return True


def plain_host(host: str) -> str:
    """Return an IPv4-mapped IPv6 address as IPv4; any other host unchanged."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def java_address(address: str) -> str:
    """Return an IP address as Java's InetAddress prints one: after a slash, and all eight groups of IPv6."""
    if ":" not in address:
        return f"/{address}"
    groups = struct.unpack("!8H", socket.inet_pton(socket.AF_INET6, address))
    return "/" + ":".join(f"{group:x}" for group in groups)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address; a name other than localhost may lead anywhere."""
    if host in ("localhost", "::1"):
        return True
    try:
        return socket.inet_aton(host)[0] == _LOOPBACK_BYTE
    except OSError:
        return False


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, address


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "the host is not known"
    if error.errno == errno.EADDRINUSE:
        return "the port is taken by another process"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has that address"
    if error.errno == errno.EACCES:
        return "this user may not open that port"
    return os.strerror(error.errno) if error.errno else str(error)
