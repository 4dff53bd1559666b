"""An edge-triggered selector: epoll behind the standard library's interface.

Facts about edges (epoll(7))
- A descriptor is registered once, for reading and writing, and never modified. A level-triggered selector would need
  one system call to mute a connection and one to unmute it, for every request.
- An event comes when bytes *arrive*, not while they are there. A reader that stops before the end must remember that
  there may be more (`Connection.may_have_input`).
- "Writable" comes only after a write found the socket's buffer full. A registration reports the present state once.
- The eventfd that wakes the processor is never read: each write to it is a new edge.

Threads: one processor owns a selector; any thread may call `wake`.
"""

from __future__ import annotations

import os
import select
import selectors
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.network.batches.many_parts import wait_and_send

if TYPE_CHECKING:
    from barnabas.protocol.schema import Part

READABLE: Final = select.EPOLLIN | select.EPOLLRDHUP
WRITABLE: Final = select.EPOLLOUT
HUNG_UP: Final = select.EPOLLRDHUP  # the client has closed its sending side
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR  # neither side can send

_INTEREST: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_EVENTS_MAX: Final = 512


class EdgeSelector(selectors.BaseSelector):
    """`selectors.BaseSelector` over edge-triggered epoll, with a lean `poll` for the hot path."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, selectors.SelectorKey] = {}  # owner: processor
        self._wake_lock = threading.Lock()  # a leaf; `wake` must not write to a closed and reused descriptor
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # guarded by: _wake_lock; -1 once closed
        self._epoll.register(self._wake_fd, select.EPOLLIN | select.EPOLLET)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a descriptor for every change; `events` is only remembered, the interest never changes."""
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if fd in self._keys:
            raise KeyError(f"descriptor {fd} is registered already")
        key = selectors.SelectorKey(fileobj, fd, events, data)
        self._epoll.register(fd, _INTEREST)
        self._keys[fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Stop watching a descriptor, before it is closed."""
        key = self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())
        self._epoll.unregister(key.fd)
        return key

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return (descriptor, epoll events) pairs; a wake-up is a pair with an unregistered descriptor."""
        return self._epoll.poll(timeout_s, _EVENTS_MAX)

    def poll_and_send(
        self, timeout_s: float, descriptors: list[int], parts: list[list[Part]], most: int
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int, bool, int]], int]:
        """Do what `poll` does, and send parts whenever a full socket has space; see `python_wait_and_send`."""
        return wait_and_send(self._epoll, int(timeout_s * 1e9), descriptors, parts, most)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Do what `poll` does, with the types of the standard library."""
        ready: list[tuple[selectors.SelectorKey, int]] = []
        for fd, events in self.poll(-1 if timeout is None else timeout):
            key = self._keys.get(fd)
            if key is not None:
                mask = selectors.EVENT_READ if events & READABLE else 0
                ready.append((key, mask | (selectors.EVENT_WRITE if events & WRITABLE else 0)))
        return ready

    def wake(self) -> None:
        """Make `poll` return, now or when it is next called; from any thread, even after `close`."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return the registered keys by descriptor."""
        return self._keys

    def close(self) -> None:
        """Close the selector's own descriptors; registered ones stay open."""
        self._epoll.close()
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.close(self._wake_fd)
                self._wake_fd = -1
        self._keys.clear()
