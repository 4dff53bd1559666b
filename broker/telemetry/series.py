"""The series that clients have pushed: the last number of each, by client instance.

Rules
1. There are at most SERIES_MAX series, and CLIENT_SERIES_MAX of one client. More are left out and counted.
2. The series of a client go when it ends, when its connection closes, or when it expires. A series that its client no
   longer pushes goes after three intervals, and one that is no longer wanted with the next push.
3. `client_id` and `client_instance_id` are the broker's; a client cannot set these labels. A long client id is cut, as
   all label values are.

Threads: any; `_lock` guards all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.telemetry.otlp import VALUE_CHARACTERS_MAX
from barnabas.common.ids import uuid_to_string

if TYPE_CHECKING:
    from barnabas.broker.telemetry.instance import ClientInstance
    from barnabas.broker.telemetry.otlp import Labels, Point

SERIES_MAX: Final = 10_000
CLIENT_SERIES_MAX: Final = 1_000
INTERVALS_KEPT: Final = 3
_OWN_LABELS: Final = ("client_id", "client_instance_id")


class _Series:
    """The state of one series."""

    __slots__ = ("is_counter", "seen_ms", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.is_counter = False
        self.seen_ms = 0


class Sample(NamedTuple):
    """A series as it is now."""

    labels: dict[str, str]
    value: float
    is_counter: bool


class ClientSeries:
    """The series of one client instance."""

    __slots__ = ("by_key", "instance", "own_labels", "pushed_ms")

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance
        self.own_labels = {
            "client_id": (instance.attributes.get("client_id") or "")[:VALUE_CHARACTERS_MAX],
            "client_instance_id": uuid_to_string(instance.id),
        }
        self.pushed_ms = 0
        self.by_key: dict[tuple[str, Labels], _Series] = {}

    def copy(self) -> ClientSeries:
        """Return a copy, to be read while the client pushes. The numbers in it may be newer."""
        made = ClientSeries(self.instance)
        made.pushed_ms, made.by_key = self.pushed_ms, dict(self.by_key)
        return made

    def value(self, names: Iterable[str]) -> float | None:
        """Return the greatest number that is shown for the first of these names; None without any."""
        for name in names:
            found = [series.value for (each, _), series in self.by_key.items() if each == name]
            # NaN: the client has measured nothing. An infinite number would be no JSON.
            known = [value for value in found if math.isfinite(value)]
            if known:
                return max(known)
        return None


class SeriesStore:
    """See the module."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: dict[bytes, ClientSeries] = {}  # guarded by: _lock
        self._count = 0  # guarded by: _lock

    def take(self, instance: ClientInstance, points: Iterable[Point], now_ms: int) -> int:
        """Note what a client pushed; return how many new series did not fit (rule 1)."""
        left_out = 0
        with self._lock:
            client = self._client(instance)
            client.pushed_ms = now_ms
            for point in points:
                labels = tuple(label for label in point.labels if label[0] not in _OWN_LABELS)
                key = (point.name, labels)
                series = client.by_key.get(key)
                if series is None:
                    if self._count >= SERIES_MAX or len(client.by_key) >= CLIENT_SERIES_MAX:
                        left_out += 1
                        continue
                    series = client.by_key[key] = _Series()
                    self._count += 1
                series.value = series.value + point.value if point.is_delta else point.value
                series.is_counter = point.is_counter
                series.seen_ms = now_ms
        return left_out

    def _client(self, instance: ClientInstance) -> ClientSeries:
        """Return a client's series. After a change of its subscriptions it begins again; `_lock` is held."""
        client = self._clients.get(instance.id)
        if client is not None and client.instance.wanted != instance.wanted:
            self._count -= len(client.by_key)
            client = None
        if client is None:
            client = self._clients[instance.id] = ClientSeries(instance)
        return client

    def forget(self, instance_id: bytes) -> None:
        """Remove the series of a client."""
        with self._lock:
            client = self._clients.pop(instance_id, None)
            if client is not None:
                self._count -= len(client.by_key)

    def expire(self, now_ms: int) -> None:
        """Remove the series that have not been pushed for a while."""
        with self._lock:
            for instance_id, client in list(self._clients.items()):
                oldest_ms = now_ms - INTERVALS_KEPT * client.instance.wanted.interval_ms
                late = [key for key, series in client.by_key.items() if series.seen_ms < oldest_ms]
                for key in late:
                    del client.by_key[key]
                self._count -= len(late)
                if not client.by_key:
                    del self._clients[instance_id]

    def clients(self) -> list[ClientSeries]:
        """Return the series by client, as copies."""
        with self._lock:
            return [client.copy() for client in self._clients.values()]

    def count(self) -> int:
        """Return how many series there are."""
        return self._count

    def by_name(self) -> dict[str, list[Sample]]:
        """Return every series, by name in alphabetical order."""
        found: dict[str, list[Sample]] = {}
        # Why copies: a processor that closes a connection waits for the lock (`forget`).
        for client in self.clients():
            for (name, labels), series in client.by_key.items():
                sample = Sample({**client.own_labels, **dict(labels)}, series.value, series.is_counter)
                found.setdefault(name, []).append(sample)
        return dict(sorted(found.items()))
