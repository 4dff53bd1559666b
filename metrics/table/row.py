"""A row of THE table of metrics, and the kinds of instruments.

Kafka has two families of metrics. Yammer's (`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec`) have one MBean
for each metric: gauges, meters, histograms, timers. Those of the client library
(`kafka.server:type=socket-server-metrics,listener=…`) have one MBean for many numbers, its attributes; their types and
names are hyphenated here, and a row is one sensor: a number, a total with its rate, or an average with its maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The kind of an instrument, which decides its names and types on the page."""

    GAUGE = "gauge"
    COUNTER = "counter"
    METER = "meter"
    #: A meter of nanoseconds (idle or blocked), shown as the share of time: its one-minute rate divided by 10^9.
    RATIO = "ratio"
    HISTOGRAM = "histogram"
    #: A histogram of durations with a meter of their number.
    TIMER = "timer"
    #: A total and its rate over the last half to whole minute (`Meter` of Kafka's client library).
    SENSOR = "sensor"
    #: Average and maximum over the last half to whole minute (`Avg` and `Max` of Kafka's client library).
    AVG_MAX = "avg_max"
    #: A word: the series has the value 1 and carries the word as a label.
    TEXT = "text"


GAUGE, COUNTER, METER, RATIO, HISTOGRAM, TIMER, SENSOR, AVG_MAX, TEXT = Kind


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row.

    `group`, `type` and `name` are Kafka's. `buckets` is the name of the Prometheus histogram for this row, or "": its
    base unit ends the name. `total` ends the name of a sensor's total. `exact` is the only name of a row that follows
    neither dialect, such as kafka_exporter's.
    """

    group: str
    type: str
    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: str = ""
    total: str = "total"
    exact: str = ""

    def attributes(self) -> tuple[str, ...]:
        """Return the attributes of the MBean that a row of the client library covers."""
        if self.kind is Kind.SENSOR:
            return f"{self.name}-rate", f"{self.name}-{self.total}"
        if self.kind is Kind.AVG_MAX:
            return f"{self.name}-avg", f"{self.name}-max"
        return (f"{self.name}-total",) if self.kind is Kind.COUNTER else (self.name,)


METRICS: list[Metric] = []


def row(
    group: str,
    type_: str,
    name: str,
    kind: Kind,
    doc: str,
    *,
    labels: tuple[str, ...] = (),
    unit: str = "",
    buckets: str = "",
    total: str = "total",
    exact: str = "",
) -> Metric:
    """Return a new row, which is added to THE table."""
    made = Metric(group, type_, name, kind, doc, labels, unit, buckets, total, exact)
    METRICS.append(made)
    return made
