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
from typing import Any, Final

#: socket.send.buffer.bytes and the like: leave the size to the kernel.
DEFAULT_BUFFER_SIZE: Final = -1
_LOOPBACK_BYTE: Final = 127
_ALL_OF_IPV4: Final = "0.0.0.0"


class AddressError(OSError):
    """An address cannot be used; the message is one line for the user."""


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int, backlog: int, receive_buffer_bytes: int = DEFAULT_BUFFER_SIZE) -> socket.socket:
    """Open a non-blocking listening socket. An empty host, like 0.0.0.0, means all interfaces, of IPv6 too, as in Java.

    Raises AddressError when the address is taken, unknown or not allowed.
    """
    shown = format_address(host or _ALL_OF_IPV4, port)
    try:
        if host in ("", _ALL_OF_IPV4) and _has_both_families():
            return _listen(socket.AF_INET6, ("::", port), backlog, receive_buffer_bytes)
        family, address = _resolve(host, port)
        return _listen(family, address, backlog, receive_buffer_bytes)
    except OSError as error:
        raise AddressError(f"cannot listen on {shown}: {_reason(error)}") from error


def _listen(
    family: socket.AddressFamily, address: tuple[object, ...], backlog: int, receive_buffer_bytes: int
) -> socket.socket:
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if receive_buffer_bytes != DEFAULT_BUFFER_SIZE:  # before listen: it sets the window scale
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        server.bind(address)
        server.listen(backlog)
        server.setblocking(False)
    except OSError:
        server.close()
        raise
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


def name_to_resolve(host: str) -> str | bytes:
    """Return a host as `socket.getaddrinfo` looks it up: of a text, it asks a codec that takes 0.6 MB (IDNA, Unicode).

    Names in other scripts than ASCII need that codec.
    """
    return host.encode() if host.isascii() else host


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """Return a connection. Raises OSError, and UnicodeError for a host that is no name."""
    name: Any = name_to_resolve(host)  # Why Any: the declaration of create_connection knows texts only
    return socket.create_connection((name, port), timeout_s)


def can_be_resolved(host: str) -> bool:
    """Return whether a text is an IP address or the name of a host; may ask a name server."""
    try:
        socket.getaddrinfo(name_to_resolve(host), None)
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


def _has_both_families() -> bool:
    """Return whether a socket of IPv6 can be opened that takes IPv4, too."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(("::", 0))
    except OSError:  # the kernel has no IPv6, or it is switched off
        return False
    return True


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """Return the first address of IPv4 of a host, as Java does; of IPv6 if it has no other."""
    name = name_to_resolve(host or _ALL_OF_IPV4)
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
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
