"""FairQueue: things to do for clients, by the network that they come from; networks take turns, and so do addresses.

A client that comes alone does not wait behind the thousands of another address, and not behind thousands of addresses
of one network: these have one turn together, in which they take turns. A network is the first 24 bits of an IPv4
address, or the first 64 of an IPv6 address, since one host usually has all the rest of them.

Threads: one at a time.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


def network_of(address: str) -> str:
    """Return the network of a client's address."""
    if ":" not in address:
        return address.rpartition(".")[0]
    try:
        return socket.inet_pton(socket.AF_INET6, address.partition("%")[0])[:8].hex()
    except OSError:
        return address


class FairQueue(Generic[T]):
    """See the module."""

    __slots__ = ("_networks",)

    def __init__(self) -> None:
        self._networks: _Turns[T] = _Turns(lambda: _Turns(_Line))

    def __len__(self) -> int:
        return len(self._networks)

    def add(self, address: str, item: T) -> None:
        """Add something, after all else of its address."""
        self._networks.add((network_of(address), address), item)

    def take(self) -> T:
        """Remove and return the oldest thing of the address whose turn it is; there must be one."""
        return self._networks.take()

    def take_for(self, address: str) -> T | None:
        """Remove and return something to make a place for an address; None if the address has too many itself.

        If its network has fewer than the mean of all, a network that has more loses; else it is a matter of the
        network's own addresses. The newest thing goes, of an address that has the mean of its network or more; of
        several such addresses or networks, of the one whose turn is last.
        """
        return self._networks.take_for((network_of(address), address))

    def take_all(self, is_wanted: Callable[[T], bool]) -> list[T]:
        """Remove and return all that is wanted."""
        return self._networks.take_all(is_wanted)


class _Queue(Protocol[T]):
    """What takes part in turns. `keys` say to which part of it something belongs."""

    def __len__(self) -> int: ...

    def add(self, keys: tuple[str, ...], item: T) -> None: ...

    def take(self) -> T: ...

    def take_newest(self) -> T: ...

    def take_for(self, keys: tuple[str, ...]) -> T | None: ...

    def take_all(self, is_wanted: Callable[[T], bool]) -> list[T]: ...


class _Line(Generic[T]):
    """The things of one address."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, _keys: tuple[str, ...], item: T) -> None:
        self._items.append(item)

    def take(self) -> T:
        return self._items.popleft()

    def take_newest(self) -> T:
        return self._items.pop()

    def take_for(self, _keys: tuple[str, ...]) -> None:
        return None

    def take_all(self, is_wanted: Callable[[T], bool]) -> list[T]:
        wanted: list[T] = []
        kept: deque[T] = deque()
        for item in self._items:
            (wanted if is_wanted(item) else kept).append(item)
        self._items = kept
        return wanted


class _Turns(Generic[T]):
    """Queues that take turns, by the first of their keys."""

    __slots__ = ("_by_key", "_count", "_make", "_turns")

    def __init__(self, make: Callable[[], _Queue[T]]) -> None:
        self._make = make
        self._by_key: dict[str, _Queue[T]] = {}  # none is empty
        self._turns: deque[str] = deque()  # the keys, the next one first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, keys: tuple[str, ...], item: T) -> None:
        key = keys[0]
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = self._make()
            self._turns.append(key)
        found.add(keys[1:], item)
        self._count += 1

    def take(self) -> T:
        key = self._turns.popleft()
        found = self._by_key[key]
        item = found.take()
        self._count -= 1
        if found:
            self._turns.append(key)
        else:
            del self._by_key[key]
        return item

    def take_newest(self) -> T:
        """Take from a queue that has as many as the mean or more."""
        key = next(each for each in reversed(self._turns) if self._has_many(self._by_key[each]))
        item = self._by_key[key].take_newest()
        self._taken(key, 1)
        return item

    def take_for(self, keys: tuple[str, ...]) -> T | None:
        found = self._by_key.get(keys[0])
        if found is None or not self._has_many(found):
            return self.take_newest()
        item = found.take_for(keys[1:])
        if item is not None:
            self._taken(keys[0], 1)
        return item

    def take_all(self, is_wanted: Callable[[T], bool]) -> list[T]:
        wanted: list[T] = []
        for key in list(self._turns):
            taken = self._by_key[key].take_all(is_wanted)
            self._taken(key, len(taken))
            wanted += taken
        return wanted

    def _has_many(self, queue: _Queue[T]) -> bool:
        return len(queue) * len(self._turns) >= self._count

    def _taken(self, key: str, count: int) -> None:
        self._count -= count
        if not self._by_key[key]:
            del self._by_key[key]
            self._turns.remove(key)
