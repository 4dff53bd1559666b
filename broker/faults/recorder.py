"""The recorder: requests and their outcomes, for assertions in tests.

It is a ring of limited size, and off until it is switched on. A record is added when a handler takes the request, so
that requests without an answer are there too. The outcome is added later.

Threads: any; `_lock` guards the ring and the records.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.requests.answers import Close, NoReply, Reply
from barnabas.broker.requests.error_codes import error_codes_of
from barnabas.broker.requests.request_log import error_name
from barnabas.common.clock import NS_PER_MS
from barnabas.faults.shapes import Place, names_topics, place_of_answer, shapes_of
from barnabas.protocol.error_responses import Items

if TYPE_CHECKING:
    from barnabas.broker.faults.actions.call import Call
    from barnabas.broker.faults.matching import Partition
    from barnabas.common.clock import Clock

CAPACITY_DEFAULT: Final = 10_000
CAPACITY_MAX: Final = 1_000_000
PENDING, ANSWERED, SILENT, CLOSED = "pending", "answered", "no answer", "closed"

Record = dict[str, Any]

#: The filters of `select`, by the names of the query of GET /recorder: patterns for texts, or numbers.
FILTERS: Final = ("api", "topic", "partition", "client_id", "connection", "error", "outcome", "sender", "after")


class Recorder:
    """See the module."""

    def __init__(self, node_id: int, clock: Clock) -> None:
        self._node_id = node_id  # fixed before start
        self._clock = clock  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._records: deque[Record] = deque(maxlen=CAPACITY_DEFAULT)  # guarded by: _lock
        self._sequence = 0  # guarded by: _lock; of the last record
        self.is_on = False  # replaced whole; a request in progress at that moment may be missed

    @property
    def capacity(self) -> int:
        """The upper limit of kept records."""
        return self._records.maxlen or 0

    def start(self, capacity: int = CAPACITY_DEFAULT) -> None:
        """Start recording, with an empty ring."""
        with self._lock:
            self._records = deque(maxlen=capacity)
        self.is_on = True

    def stop(self) -> None:
        """Stop recording, and keep the records."""
        self.is_on = False

    def clear(self) -> None:
        """Delete all records; sequence numbers continue."""
        with self._lock:
            self._records.clear()

    def begin(self, call: Call) -> Record:
        """Add a record for a request, and return it."""
        request, context = call.request, call.request.context
        partitions = call.partitions
        record: Record = {
            "node": self._node_id,
            "time_ms": self._clock.wall_ms(),
            "api": call.api.name,
            "version": request.header.api_version,
            "correlation_id": request.header.correlation_id,
            "client_id": request.header.client_id,
            "sender": call.sender,
            "connection": context.connection_id,
            "listener": context.listener_name,
            "principal": context.principal,
            "size_bytes": request.size_bytes,
            "partitions": [{"topic": topic, "partition": index, "error": None} for topic, index in partitions],
            "errors": [],
            "throttle_time_ms": 0,
            "outcome": PENDING,
            "elapsed_ms": None,
        }
        with self._lock:
            self._sequence += 1
            record["sequence"] = self._sequence
            self._records.append(record)
        return record

    def finish(self, call: Call, record: Record, given: Reply | NoReply | Close) -> None:
        """Add the outcome to a record."""
        found: Record = {
            "outcome": {Reply: ANSWERED, NoReply: SILENT, Close: CLOSED}[type(given)],
            "elapsed_ms": (self._clock.monotonic_ns() - call.request.received_ns) / NS_PER_MS,
            "throttle_time_ms": 0 if isinstance(given, Close) else given.throttle_time_ms,
        }
        if isinstance(given, Reply):
            answered = dict(_answered(call, given.message))
            codes = {*error_codes_of(given.message), *answered.values()}
            found["errors"] = sorted(error_name(code) for code in codes if code)
            found["partitions"] = _with_errors(record["partitions"], answered)
        with self._lock:
            record.update(found)

    def select(self, wanted: Mapping[str, str]) -> list[Record]:
        """Return the matching records, oldest first. The keys of `wanted` are some of FILTERS."""
        with self._lock:
            records = [dict(record) for record in self._records]
        return [record for record in records if _fits(record, wanted)]


def _with_errors(named: list[Record], answered: Mapping[Partition, int]) -> list[Record]:
    """Return the partitions of a request and its response, each with its error."""
    known = {(one["topic"], one["partition"]) for one in named}
    every = named + [{"topic": topic, "partition": index} for topic, index in answered if (topic, index) not in known]
    return [{**one, "error": _name(answered.get((one["topic"], one["partition"])))} for one in every]


def _name(code: int | None) -> str | None:
    return None if code is None else error_name(code)


def _answered(call: Call, message: Any) -> Iterator[tuple[Partition, int]]:
    """Yield the partitions of a response with their error codes."""
    for items in shapes_of(call.key, call.version):
        if names_topics(items):
            for place, code in _errors(items, message, Place()):
                yield call.partition_at(place), code


def _errors(items: Items, parent: Any, around: Place) -> Iterator[tuple[Place, int]]:
    for answer in getattr(parent, items.target) or ():
        place = place_of_answer(items, answer, around)
        if items.inner is None:
            yield place, getattr(answer, items.code_field)
        else:
            yield from _errors(items.inner, answer, place)


def _fits(record: Record, wanted: Mapping[str, str]) -> bool:
    return all(_CHECKS[key](record, value) for key, value in wanted.items())


def _has_partition(record: Record, key: str, value: str) -> bool:
    return any(fnmatchcase(str(one[key]), value) for one in record["partitions"])


_CHECKS: Final[dict[str, Callable[[Record, str], bool]]] = {
    "api": lambda record, value: record["api"].lower() == value.lower(),
    "topic": lambda record, value: _has_partition(record, "topic", value),
    "partition": lambda record, value: _has_partition(record, "partition", value),
    "client_id": lambda record, value: fnmatchcase(record["client_id"] or "", value),
    "connection": lambda record, value: fnmatchcase(record["connection"], value),
    "error": lambda record, value: any(fnmatchcase(name, value) for name in record["errors"]),
    "outcome": lambda record, value: record["outcome"] == value,
    "sender": lambda record, value: (
        value == "any" or (record["sender"] is None) == (value == "clients")  # as in a fault
    ),
    "after": lambda record, value: record["sequence"] > int(value),
}
