"""Names: the series of each row of the catalogue, in both dialects that public dashboards query.

The series of the MBean `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` begin with
`kafka_server_brokertopicmetrics_`. The kind decides the rest:

| kind      | Strimzi's dialect (jmx_exporter, reporter)   | Confluent's and Grafana's dialect               |
|-----------|----------------------------------------------|-------------------------------------------------|
| meter     | `bytesin_total`, `bytesinpersec_total`       | `bytesinpersec`, the count; `.._oneminuterate`  |
| ratio     | `..idle_percent`, `..idlepercent_total` (ns) | `..idlepercent`, `.._oneminuterate`, the share  |
| gauge     | `..` (`.._percent` if so named)              | `..`                                            |
| counter   | `.._total`                                   | -                                               |
| histogram | `..{quantile=}`, `.._count`                  | the same; and `.._sum`, `.._mean`, `.._max` ... |
| sensor    | `.._total`                                   | `.._rate`, `..` (the total)                     |
| avg_max   | `.._avg`, `.._max`                           | the same                                        |
| text      | `..{word=}`                                  | `.._info{word=}`                                |

Where both dialects have the same name, there is one family. `barnabas.metrics.dialect` removes the families of the
other dialect. Sensors and texts are kept, since one of Strimzi's two exporters has Confluent's names of these.

Hyphens become underscores, but `-ms` is joined to the word before it, as in Yammer's names. A hyphenated type also has
a spelling without hyphens (`raft_metrics`, `raftmetrics`). A series with a camel-case label has that label in lower
case as well. Two series would double every sum.

Counts with a name that Prometheus' rules do not allow for a counter (Confluent's names) are untyped.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from barnabas.metrics.table.row import Kind, Metric

#: The numbers of an instrument, in the order in which `page/collector.py` reads them.
_RATES: Final = ("meanrate", "oneminuterate", "fiveminuterate", "fifteenminuterate")
_MOMENTS: Final = ("mean", "min", "max", "stddev")

#: Third spellings of labels, beside camel case and lower case.
_EXTRA_LABELS: Final = {
    "networkProcessor": ("network_processor",),
    "clientSoftwareName": ("client_software_name",),
    "clientSoftwareVersion": ("client_software_version",),
}


class Dialect(StrEnum):
    """The dashboards for which series are named: the values of barnabas.metrics.dialect."""

    BOTH = "both"
    STRIMZI = "strimzi"
    CONFLUENT = "confluent"

    def has(self, other: Dialect) -> bool:
        """Return whether a page in this dialect shows a family of the other one."""
        return Dialect.BOTH in (self, other) or self is other


class Family(NamedTuple):
    """A name on the page, its Prometheus type, the index of the instrument's number it shows, and its dialect."""

    name: str
    type: str
    column: int
    dialect: Dialect = Dialect.BOTH


STRIMZI: Final = Dialect.STRIMZI
CONFLUENT: Final = Dialect.CONFLUENT


def base_names(row: Metric) -> tuple[str, ...]:
    """Return the row's name in every spelling of its type, without the suffix that the kind adds."""
    if row.exact:
        return (row.exact,)
    group = row.group.replace(".", "_")
    name = row.name.lower().replace("-", "_").replace(".", "_")
    stem, _, unit = name.rpartition("_")
    name = stem + unit if unit in ("ms", "ns") else name
    type_ = row.type.lower()
    types = (type_.replace("-", "_"), type_.replace("-", "")) if "-" in type_ else (type_,)
    return tuple(f"{group}_{spelt_type}_{name}" for spelt_type in types)


def families(row: Metric) -> list[Family]:
    """Return the simple families of a row: all but summaries and histograms."""
    return [family for base in base_names(row) for family in _families(row.kind, base)]


def _families(kind: Kind, base: str) -> list[Family]:
    if kind is Kind.GAUGE:
        # Why: Prometheus' rules reserve these suffixes for other types, but Kafka has gauges with such names.
        type_ = "untyped" if base.endswith(("_count", "_total", "_sum")) else "gauge"
        percent = [Family(_percent(base), type_, 0)] if base.endswith("percent") and "_percent" not in base else []
        return [Family(base, type_, 0), *percent]
    if kind is Kind.COUNTER:
        return [Family(base + "_total", "counter", 0)]
    if kind is Kind.METER:
        totals = dict.fromkeys((base.removesuffix("persec") + "_total", base + "_total"))
        rates = [Family(f"{base}_{rate}", "gauge", 1 + i, CONFLUENT) for i, rate in enumerate(_RATES)]
        return [
            *(Family(name, "counter", 0, STRIMZI) for name in totals),
            Family(base, "untyped", 0, CONFLUENT),
            *rates,
        ]
    if kind is Kind.RATIO:
        share = [Family(name, "gauge", 0, CONFLUENT) for name in (base, base + "_oneminuterate")]
        return [Family(_percent(base), "gauge", 0, STRIMZI), *share, Family(base + "_total", "counter", 1, STRIMZI)]
    if kind is Kind.TIMER:
        return _moments(base) + [Family(f"{base}_{rate}", "gauge", 4 + i, CONFLUENT) for i, rate in enumerate(_RATES)]
    if kind is Kind.HISTOGRAM:
        return _moments(base)
    if kind is Kind.TEXT:
        return [Family(base, "untyped", 0, STRIMZI), Family(base + "_info", "gauge", 0)]
    raise AssertionError(f"{kind} needs its row's total")


def _moments(base: str) -> list[Family]:
    return [Family(f"{base}_{moment}", "gauge", i, CONFLUENT) for i, moment in enumerate(_MOMENTS)]


def sensor_families(row: Metric) -> list[Family]:
    """Return the families of a sensor (total, rate) or of averages with maxima."""
    found = []
    for base in base_names(row):
        if row.kind is Kind.SENSOR:
            total = [Family(f"{base}_{row.total}", "untyped", 0)] if row.total != "total" else []
            found += [
                Family(f"{base}_total", "counter", 0, STRIMZI),
                *total,
                Family(base, "untyped", 0),
                Family(f"{base}_rate", "gauge", 1),
            ]
        else:
            found += [Family(f"{base}_avg", "gauge", 0), Family(f"{base}_max", "gauge", 1)]
    return found


@cache
def all_families(row: Metric, dialect: Dialect = Dialect.BOTH) -> list[Family]:
    """Return every simple family that a row has in a dialect."""
    every = sensor_families(row) if row.kind in (Kind.SENSOR, Kind.AVG_MAX) else families(row)
    return [family for family in every if dialect.has(family.dialect)]


def family_names(row: Metric, dialect: Dialect = Dialect.BOTH) -> list[str]:
    """Return the names of all series of a row, with all series of its summaries and histograms."""
    names = []
    if row.kind in (Kind.HISTOGRAM, Kind.TIMER):
        names = [base + ending for base in base_names(row) for ending in ("", "_count", "_sum")]
    if row.buckets:
        names += [row.buckets + ending for ending in ("_bucket", "_count", "_sum")]
    return names + [family.name for family in all_families(row, dialect)]


def spelt(labels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the labels that have a value, in every spelling of their names."""
    result = {}
    for name, value in labels:
        if value != "":
            plain = name.replace("-", "_")
            for spelling in (plain, plain.lower(), *_EXTRA_LABELS.get(name, ())):
                result[spelling] = value
    return result


def _percent(base: str) -> str:
    return base.removesuffix("percent") + "_percent"
