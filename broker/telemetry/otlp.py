"""Reads metrics in OpenTelemetry's protocol (OTLP, `MetricsData`), as clients push them.

Rules
1. The library, opentelemetry-proto with protobuf, is imported with the first push: it takes 9 MB.
2. Every cost is bounded. The payload's size bounds the library's time and memory: 1 MiB of empty parts take 35 ms and
   40 MB. Python looks at PARTS_MAX parts and no more; names and labels have bounds as well. Where the library has no C
   parser (free-threaded interpreters), it takes hundreds of times as long, so a payload may have SLOW_BYTES_MAX.
3. Gauges and sums are read: Kafka's clients push nothing else.
4. Names become Prometheus' names: other characters than letters, digits and "_" become "_". A name that is not below
   `org.apache.kafka.` gets `client_` in front, so that no client can claim a name of the broker's own metrics.

Threads: any; the caller lets one in at a time (rule 2 is about each).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sized
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.telemetry.payload import PayloadError

if TYPE_CHECKING:
    from barnabas.broker.telemetry.subscriptions import Wanted

PARTS_MAX: Final = 50_000  # metrics, points and attributes together
SLOW_BYTES_MAX: Final = 65_536
NAME_CHARACTERS_MAX: Final = 200
VALUE_CHARACTERS_MAX: Final = 200  # of a label; the rest is cut
LABELS_MAX: Final = 16
OWN_PREFIX: Final = "org_apache_kafka_"
OTHER_PREFIX: Final = "client_"

_OTHER_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_]")
_DELTA: Final = 1  # AGGREGATION_TEMPORALITY_DELTA

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One number of a metric."""

    name: str  # in Prometheus' form
    labels: Labels  # sorted by name
    value: float
    is_counter: bool = False  # it never decreases
    is_delta: bool = False  # the value is to be added to the former ones


class Pushed(NamedTuple):
    """The content of a payload."""

    points: list[Point]
    left_out: int  # metrics and points of other types, or with too long names or too many labels


def read(payload: bytes, wanted: Wanted) -> Pushed:
    """Return the numbers that are wanted; raises PayloadError."""
    decode_error, metrics_data, is_slow = _library()
    if is_slow and len(payload) > SLOW_BYTES_MAX:
        raise PayloadError(f"more than {SLOW_BYTES_MAX} bytes, and protobuf has no C parser here")
    try:
        message = metrics_data.FromString(payload)
    except decode_error as error:
        raise PayloadError(f"no OpenTelemetry metrics: {error}") from None
    return _Reader(wanted).read(message)


@cache
def _library() -> tuple[type[Exception], Any, bool]:
    """Return the library's error and message, and whether it has no C parser."""
    from google.protobuf.internal import api_implementation
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    return DecodeError, MetricsData, api_implementation.Type() == "python"


class _Reader:
    """Walks through one message."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._left = PARTS_MAX
        self._left_out = 0

    def read(self, message: Any) -> Pushed:
        """Return the points of a message."""
        points: list[Point] = []
        for resource_metrics in self._each(message.resource_metrics):
            shared = self._labels(resource_metrics.resource.attributes)
            for scope_metrics in self._each(resource_metrics.scope_metrics):
                for metric in self._each(scope_metrics.metrics):
                    if self._wanted.has(metric.name):
                        points += self._points(metric, shared)
        return Pushed(points, self._left_out)

    def _each(self, parts: Sized) -> Any:
        """Return the parts to go through, if there are not too many of them."""
        self._left -= len(parts)
        if self._left < 0:
            raise PayloadError(f"more than {PARTS_MAX} parts")
        return parts

    def _points(self, metric: Any, shared: dict[str, str]) -> Iterator[Point]:
        kind = metric.WhichOneof("data")
        if kind not in ("gauge", "sum") or len(metric.name) > NAME_CHARACTERS_MAX:
            self._left_out += 1
            return
        data = getattr(metric, kind)
        is_counter = kind == "sum" and data.is_monotonic
        is_delta = kind == "sum" and data.aggregation_temporality == _DELTA
        name = metric_name(metric.name)
        points = self._each(data.data_points)
        if len(shared) > LABELS_MAX:  # Why here: each point would copy them all
            self._left_out += len(points)
            return
        for point in points:
            labels = {**shared, **self._labels(point.attributes)}
            which = point.WhichOneof("value")
            if which is None or len(labels) > LABELS_MAX:
                self._left_out += 1
            else:
                yield Point(name, tuple(sorted(labels.items())), float(getattr(point, which)), is_counter, is_delta)

    def _labels(self, attributes: Any) -> dict[str, str]:
        labels = {}
        for attribute in self._each(attributes):
            which = attribute.value.WhichOneof("value")
            # Why not the others: lists and bytes are no labels, and no client of Kafka has any.
            if which in ("string_value", "bool_value", "int_value", "double_value"):
                value = str(getattr(attribute.value, which))
                labels[label_name(attribute.key)] = value[:VALUE_CHARACTERS_MAX]
        return labels


def metric_name(name: str) -> str:
    """Return the name of a metric in Prometheus' form (rule 4)."""
    plain = _OTHER_CHARACTERS.sub("_", name)
    return plain if plain.startswith(OWN_PREFIX) else OTHER_PREFIX + plain


def label_name(name: str) -> str:
    """Return the name of a label in Prometheus' form, which allows no digit and no two underscores at its start."""
    plain = _OTHER_CHARACTERS.sub("_", name[:NAME_CHARACTERS_MAX]).lstrip("_")
    return f"_{plain}" if not plain or plain[0].isdigit() else plain
