"""Sockets as `socket` has them, for TCP over IPv4.

Threads: any task.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.simulation.machine.network.links import Network
from barnabas.testing.simulation.machine.network.polling import Pollable, current_process
from barnabas.testing.simulation.machine.network.streams import Direction, End, Listener, begin_connect
from barnabas.testing.simulation.machine.scheduler import NS_PER_S, Reason, active

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.process import Process

_READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR
#: Why numbers: the flags of `socket` are an enumeration, whose operators are slow.
_PEEK, _WAITALL, _DONTWAIT = map(int, (socket.MSG_PEEK, socket.MSG_WAITALL, socket.MSG_DONTWAIT))
_TIMEVAL: Final = struct.Struct("@ll")
_READING: Final = Reason("bytes from a socket")
_WRITING: Final = Reason("space in a socket")
_CONNECTING: Final = Reason("a connection")
_ACCEPTING: Final = Reason("a client")

_makefile: Any = socket.socket.makefile

_network: Network | None = None  # replaced by `use`


def use(network: Network | None) -> None:
    """Make this the network of the sockets that are opened from now on."""
    global _network
    _network = network


def _used() -> Network:
    assert _network is not None, "no network is simulated"
    return _network


def connections_of(process: Process) -> list[End]:
    """Return the ends of all connections of a process with others; its pairs of sockets are left out."""
    pollables = [each.pollable for each in process.descriptors.values() if isinstance(each, Socket)]
    return [each for each in dict.fromkeys(pollables) if isinstance(each, End) and each.local[0] != each.remote[0]]


class Socket:
    """See socket.socket."""

    def __init__(
        self, family: int = -1, type: int = -1, proto: int = -1, fileno: None = None, *, end: End | None = None
    ) -> None:
        assert fileno is None, "sockets are not passed between processes"
        self._scheduler = active()
        self._network = _used()
        self._process = current_process()
        self.family = socket.AF_INET if family == -1 else socket.AddressFamily(family)
        self.type = socket.SOCK_STREAM
        self.proto = 0
        self._timeout: float | None = None
        self._receive_limit_ns = 0  # SO_RCVTIMEO; 0: none
        self._send_limit_ns = 0
        self._options: dict[tuple[int, int], int] = {}
        self._local: tuple[str, int] | None = None if end is None else end.local
        self._listener: Listener | None = None
        self._end: End | None = end
        self._fd = self._process.open(self)
        self._io_refs = 0  # files of `makefile`, by its name in the standard library
        self._is_closing = False

    # -- descriptors

    @property
    def pollable(self) -> Pollable | None:
        """The object that epoll watches; None before the socket connects or listens."""
        return self._listener or self._end

    def fileno(self) -> int:
        """See socket.socket."""
        return self._fd

    def close(self) -> None:
        """See socket.socket."""
        self._is_closing = True
        if self._fd >= 0 and self._io_refs <= 0:
            fd, self._fd = self._fd, -1
            self._process.close(fd)
            self._scheduler.point()

    def detach(self) -> int:
        """See socket.socket."""
        fd, self._fd = self._fd, -1
        return fd

    def makefile(self, *args: Any, **kwargs: Any) -> Any:
        """See socket.socket."""
        return _makefile(self, *args, **kwargs)

    def _decref_socketios(self) -> None:
        """End a file of `makefile`, as SocketIO asks for; the last one closes a socket that was closed before."""
        self._io_refs -= 1
        if self._is_closing:
            self.close()

    def release(self) -> None:
        """See Descriptor."""
        self._fd = -1
        if self.pollable is not None:
            self.pollable.release()

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- options

    def setblocking(self, flag: bool) -> None:
        """See socket.socket."""
        self._timeout = None if flag else 0.0

    def getblocking(self) -> bool:
        """See socket.socket."""
        return self._timeout != 0

    def settimeout(self, value: float | None) -> None:
        """See socket.socket."""
        self._timeout = value

    def gettimeout(self) -> float | None:
        """See socket.socket."""
        return self._timeout

    def setsockopt(self, level: int, name: int, value: Any, length: int | None = None) -> None:
        """See socket.socket."""
        self._check_open()
        if level == socket.SOL_SOCKET and name in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            seconds, micros = _TIMEVAL.unpack(value)
            limit_ns = seconds * NS_PER_S + micros * 1000
            if name == socket.SO_RCVTIMEO:
                self._receive_limit_ns = limit_ns
            else:
                self._send_limit_ns = limit_ns
        elif isinstance(value, int):
            self._options[(level, name)] = value

    def getsockopt(self, level: int, name: int, buflen: int = 0) -> int:
        """See socket.socket."""
        self._check_open()
        if level == socket.SOL_SOCKET and name == socket.SO_ERROR:
            return 0 if self._end is None else self._end.take_error()
        if level == socket.SOL_SOCKET and name in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            return self._network.buffer_bytes
        return self._options.get((level, name), 0)

    # -- addresses

    def bind(self, address: tuple[str, int]) -> None:
        """See socket.socket."""
        self._check_open()
        host, port = address[:2]
        own = self._network.address_of(host, self._process.address)
        if own != self._process.address:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        port = port or self._network.draw_port(own)
        if (own, port) in self._network.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._local = (own, port)

    def listen(self, backlog: int = 128) -> None:
        """See socket.socket."""
        self._check_open()
        if self._local is None:
            self.bind(("", 0))
        assert self._local is not None
        if self._local in self._network.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._listener = Listener(self._network, self._process, self._local, backlog)
        self._network.listeners[self._local] = self._listener

    def getsockname(self) -> tuple[str, int]:
        """See socket.socket."""
        self._check_open()
        return self._local or ("0.0.0.0", 0)

    def getpeername(self) -> tuple[str, int]:
        """See socket.socket."""
        return self._connected().remote

    # -- connections

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        """See socket.socket."""
        self._check_open()
        if self._listener is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._scheduler.point()
        while (end := self._listener.accept()) is None:
            self._wait(self._listener, select.EPOLLIN, self._deadline_ns(0), _ACCEPTING)
        return Socket(self.family, end=end), end.remote

    def connect(self, address: tuple[str, int]) -> None:
        """See socket.socket."""
        error = self._begin(address)
        if error == errno.EINPROGRESS and self._timeout == 0:
            raise BlockingIOError(error, os.strerror(error))
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, os.strerror(error))
        end = self._end
        assert end is not None
        if not end.wait_for(_WRITABLE, self._scheduler.deadline_ns(self._timeout), _CONNECTING):
            raise TimeoutError("timed out")
        end.raise_error()

    def connect_ex(self, address: tuple[str, int]) -> int:
        """See socket.socket."""
        if self._timeout == 0:
            return self._begin(address)
        try:
            self.connect(address)
        except TimeoutError:
            return errno.EAGAIN
        except OSError as error:
            return error.errno or errno.EINVAL
        return 0

    def shutdown(self, how: int) -> None:
        """See socket.socket."""
        self._check_open()
        if self._listener is not None:
            self._listener.shut()
        else:
            self._connected().shut(reading=how != socket.SHUT_WR, writing=how != socket.SHUT_RD)
        self._scheduler.point()

    def _begin(self, address: tuple[str, int]) -> int:
        """Begin to connect, or look how an attempt goes; return an error number."""
        self._check_open()
        self._scheduler.point()
        if self._end is not None:
            if self._end.is_connected:
                return errno.EISCONN
            return self._end.take_error() or errno.EALREADY
        host, port = address[:2]
        own = self._process.address
        if self._local is None:
            self._local = (own, self._network.draw_port(own))
        remote = (self._network.address_of(host, own), port)
        self._end = End(self._network, self._process, self._local, remote)
        begin_connect(self._end)
        return errno.EINPROGRESS

    # -- bytes

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """See socket.socket."""
        end = self._connected()
        self._scheduler.point()
        flags = int(flags)
        is_peeking = flags & _PEEK != 0
        is_whole = flags & _WAITALL != 0 and not is_peeking
        deadline_ns = self._deadline_ns(self._receive_limit_ns)
        found = b""
        while True:
            data = end.read(bufsize - len(found), peek=is_peeking)
            if data is not None:
                found = found + data if found else data
                if not data or not is_whole or len(found) == bufsize:
                    return found
                continue
            try:
                self._wait(end, _READABLE, deadline_ns, _READING, dont_wait=flags & _DONTWAIT != 0)
            except OSError:
                if found:
                    return found
                raise

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """See socket.socket."""
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data)

    def send(self, data: Any, flags: int = 0) -> int:
        """See socket.socket."""
        end = self._connected()
        self._scheduler.point()
        flags = int(flags)
        view = memoryview(data).cast("B")
        deadline_ns = self._deadline_ns(self._send_limit_ns)
        sent = 0
        while True:
            sent += end.write(view[sent:])
            if sent == len(view) or (sent and self._timeout is not None):
                return sent
            try:
                self._wait(end, _WRITABLE, deadline_ns, _WRITING, dont_wait=flags & _DONTWAIT != 0)
            except OSError:
                if sent:
                    return sent
                raise

    def sendall(self, data: Any, flags: int = 0) -> None:
        """See socket.socket."""
        view = memoryview(data).cast("B")
        while view:
            view = view[self.send(view, flags) :]

    def sendmsg(self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0) -> int:
        """See socket.socket."""
        return self.send(b"".join(buffers), flags)

    def _wait(
        self, pollable: Pollable, bits: int, deadline_ns: int | None, reason: Reason, *, dont_wait: bool = False
    ) -> None:
        if self._timeout == 0 or dont_wait:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if not pollable.wait_for(bits, deadline_ns, reason):
            if self._timeout is None:  # a limit by setsockopt
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            raise TimeoutError("timed out")

    def _deadline_ns(self, limit_ns: int) -> int | None:
        if self._timeout is not None:
            return self._scheduler.deadline_ns(self._timeout)
        return self._scheduler.now_ns + limit_ns if limit_ns else None

    def _connected(self) -> End:
        self._check_open()
        if self._end is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._end

    def _check_open(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def socketpair(family: int = -1, type: int = -1, proto: int = 0) -> tuple[Socket, Socket]:
    """See socket.socketpair."""
    network, process = _used(), current_process()
    addresses = [(process.address, network.draw_port(process.address)) for _ in range(2)]
    first = End(network, process, addresses[0], addresses[1])
    second = End(network, process, addresses[1], addresses[0])
    for end, other in ((first, second), (second, first)):
        end.is_connected = True
        end.outgoing = Direction(network, end, other)
    return Socket(end=first), Socket(end=second)


def getaddrinfo(
    host: str | bytes | None, port: int | str | None, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]]:
    """See socket.getaddrinfo. Names have addresses of IPv4 only."""
    if family not in (socket.AF_UNSPEC, socket.AF_INET):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    if isinstance(host, bytes):
        host = host.decode()
    number = int(port or 0)
    if (not host and flags & socket.AI_PASSIVE) or host == "0.0.0.0":
        address = "0.0.0.0"
    else:
        address = gethostbyname(host or "")
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, number))]


def gethostbyname(host: str) -> str:
    """See socket.gethostbyname."""
    task = active().current
    return _used().address_of(host, "0.0.0.0" if task is None else task.process.address)


def gethostbyname_ex(host: str) -> tuple[str, list[str], list[str]]:
    """See socket.gethostbyname_ex."""
    return host, [], [gethostbyname(host)]


def gethostbyaddr(host: str) -> tuple[str, list[str], list[str]]:
    """See socket.gethostbyaddr."""
    address = gethostbyname(host)
    names = [name for name, known in _used().names.items() if known == address]
    return (names or [address])[0], names[1:], [address]


def getnameinfo(address: tuple[str, int], flags: int) -> tuple[str, str]:
    """See socket.getnameinfo."""
    host, port = address[:2]
    return host if flags & socket.NI_NUMERICHOST else gethostbyaddr(host)[0], str(port)


def gethostname() -> str:
    """See socket.gethostname."""
    task = active().current
    return "simulation" if task is None else task.process.name
