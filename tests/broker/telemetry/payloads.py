"""What clients push, built with the library."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
PREFIX = "org.apache.kafka."


class Payload:
    """One message with one resource."""

    def __init__(self, **resource: object) -> None:
        self.message = MetricsData()
        self._resource = self.message.resource_metrics.add()
        add_attributes(self._resource.resource.attributes, resource)
        self._metrics = self._resource.scope_metrics.add().metrics

    def gauge(self, name: str, value: float, **labels: object) -> Payload:
        """Add a gauge."""
        self._point(self._metrics.add(name=name).gauge.data_points.add(), value, labels)
        return self

    def sum(
        self, name: str, value: float, temporality: Any = DELTA, monotonic: bool = True, **labels: object
    ) -> Payload:
        """Add a sum."""
        data = self._metrics.add(name=name).sum
        data.aggregation_temporality = temporality
        data.is_monotonic = monotonic
        self._point(data.data_points.add(), value, labels)
        return self

    def histogram(self, name: str) -> Payload:
        """Add a histogram."""
        self._metrics.add(name=name).histogram.data_points.add(count=1)
        return self

    def without_value(self, name: str) -> Payload:
        """Add a gauge whose point has no value."""
        self._metrics.add(name=name).gauge.data_points.add()
        return self

    def encoded(self) -> bytes:
        """Return the message."""
        return self.message.SerializeToString()

    @staticmethod
    def _point(point: Any, value: float, labels: dict[str, object]) -> None:
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        add_attributes(point.attributes, labels)


def add_attributes(attributes: Any, values: dict[str, object]) -> None:
    """Add attributes of any type."""
    for name, value in values.items():
        added = attributes.add(key=name)
        if isinstance(value, bool):
            added.value.bool_value = value
        elif isinstance(value, int):
            added.value.int_value = value
        elif isinstance(value, float):
            added.value.double_value = value
        elif isinstance(value, bytes):
            added.value.bytes_value = value
        else:
            added.value.string_value = str(value)
