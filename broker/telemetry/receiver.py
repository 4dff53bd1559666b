"""TelemetryReceiver: takes the metrics that clients push, and shows them on the page of metrics.

In Apache Kafka a plugin does this (`ClientTelemetryExporter`), and without one brokers do not offer the APIs.

Threads: any handler calls `export`; one payload is read at a time, since reading it takes memory (see `otlp`). The
scraper calls `families`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.broker.telemetry import otlp
from barnabas.broker.telemetry.payload import decompressed
from barnabas.broker.telemetry.series import Sample, SeriesStore
from barnabas.common.ids import uuid_to_string
from barnabas.metrics.registry import ForeignFamily
from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.broker.telemetry.instance import ClientInstance
    from barnabas.metrics.registry import Registry
    from barnabas.protocol.records.compression import Buffer, CompressionType

log = logging.getLogger("barnabas.telemetry")

_EXPORTS_MAX = 2  # one payload is read, and one waits


class BusyError(Exception):
    """Other pushes are being read. A handler does not wait for them, since it could serve other requests."""


class TelemetryReceiver:
    """See the module."""

    def __init__(self, registry: Registry) -> None:
        self.store = SeriesStore()
        self._reading = threading.Lock()  # held while a payload is read; a leaf
        self._places = threading.BoundedSemaphore(_EXPORTS_MAX)
        self._left_out = registry.counter(catalogue.TELEMETRY_LEFT_OUT)
        registry.gauge(catalogue.TELEMETRY_SERIES, self.store.count)
        registry.foreign(self.families)

    def export(
        self, instance: ClientInstance, compression: CompressionType, data: Buffer, bytes_max: int, now_ms: int
    ) -> None:
        """Take what a client pushed; raises PayloadError, and BusyError if too many others push."""
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            with self._reading:
                pushed = otlp.read(decompressed(compression, data, bytes_max), instance.wanted)
        finally:
            self._places.release()
        left_out = pushed.left_out + self.store.take(instance, pushed.points, now_ms)
        if left_out:
            self._left_out.inc(left_out)
            log.debug("%d series of client instance %s are left out", left_out, uuid_to_string(instance.id))

    def forget(self, instance_id: bytes) -> None:
        """Remove what a client pushed."""
        self.store.forget(instance_id)

    def expire(self, now_ms: int) -> None:
        """Remove what clients push no more."""
        self.store.expire(now_ms)

    def families(self) -> Iterator[ForeignFamily]:
        """Yield what clients pushed, by name."""
        for name, samples in self.store.by_name().items():
            series = [(sample.labels, sample.value) for sample in samples]
            yield ForeignFamily(name, _type_of(name, samples), "Pushed by clients (KIP-714).", series)


def _type_of(name: str, samples: list[Sample]) -> str:
    """Return the Prometheus type of a family: what clients push may differ, and a counter's name ends in _total."""
    if not any(sample.is_counter for sample in samples):
        return "gauge"
    return "counter" if name.endswith("_total") and all(sample.is_counter for sample in samples) else "untyped"
