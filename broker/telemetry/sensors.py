"""The metrics of client telemetry itself: client instances, refused requests, and accepted pushes.

Kafka has sensors for each client instance. Here an instance gets them with its first event, and only so many instances
have them at a time: a page of 16,384 instances would help nobody.

Threads: any.
Source: ClientMetricsManager.ClientMetricsStats (Kafka 4.3), where a plugin exports pushes; here the broker takes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common.ids import uuid_to_string
from barnabas.metrics.meters import AvgMax, Sensor
from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.metrics.registry import Instrument, Labels, Registry
    from barnabas.metrics.table.row import Metric

INSTANCES_MAX: Final = 1000


class _OfInstance:
    """The sensors of one client instance."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.throttle = Sensor(now_s())
        self.export = Sensor(now_s())
        self.export_time = AvgMax(now_s)
        self.error = Sensor(now_s())

    def rows(self) -> tuple[tuple[Metric, Instrument], ...]:
        """Return each sensor with its row."""
        return (
            (catalogue.CLIENT_METRICS_THROTTLE, self.throttle),
            (catalogue.CLIENT_METRICS_EXPORT, self.export),
            (catalogue.CLIENT_METRICS_EXPORT_TIME, self.export_time),
            (catalogue.CLIENT_METRICS_ERROR, self.error),
        )


class TelemetrySensors:
    """See the module."""

    def __init__(self, registry: Registry, instance_count: Callable[[], int]) -> None:
        self._now_s = registry.now_s  # fixed before start
        self._unknown = registry.sensor(catalogue.CLIENT_METRICS_UNKNOWN_SUBSCRIPTION)
        self._lock = threading.Lock()  # a leaf
        self._by_id: dict[bytes, _OfInstance] = {}  # guarded by: _lock
        registry.gauge(catalogue.CLIENT_METRICS_INSTANCES, instance_count)
        registry.source(self._rows)

    def unknown_subscription(self) -> None:
        """Count a push for a subscription that is not the current one."""
        self._unknown.record()

    def throttled(self, instance_id: bytes) -> None:
        """Count a request that came too early."""
        if (found := self._of(instance_id)) is not None:
            found.throttle.record()

    def exported(self, instance_id: bytes, took_ms: float) -> None:
        """Count a push that was taken."""
        if (found := self._of(instance_id)) is not None:
            found.export.record()
            found.export_time.record(took_ms)

    def failed(self, instance_id: bytes) -> None:
        """Count a push that could not be read."""
        if (found := self._of(instance_id)) is not None:
            found.error.record()

    def forget(self, instance_id: bytes) -> None:
        """Remove the sensors of an instance."""
        with self._lock:
            self._by_id.pop(instance_id, None)

    def _of(self, instance_id: bytes) -> _OfInstance | None:
        with self._lock:
            found = self._by_id.get(instance_id)
            if found is None and len(self._by_id) < INSTANCES_MAX:
                found = self._by_id[instance_id] = _OfInstance(self._now_s)
            return found

    def _rows(self) -> Iterator[tuple[Metric, Labels, Instrument]]:
        with self._lock:
            found = list(self._by_id.items())
        for instance_id, sensors in found:
            labels = (uuid_to_string(instance_id),)
            for row, instrument in sensors.rows():
                yield row, labels, instrument
