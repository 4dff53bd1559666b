"""From the registry to the text of /metrics: the one place that knows the names dashboards use.

Names. The MBean `kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` begins `kafka_server_brokertopicmetrics_`;
then

| kind      | Strimzi's dialect (jmx_exporter)   | Confluent's and Grafana's dialect              |
|-----------|------------------------------------|------------------------------------------------|
| meter     | `bytesin_total`, a counter         | `bytesinpersec`, the count                     |
| ratio     | `..idle_percent`, one-minute rate  | `..idlepercent` and `.._oneminuterate`, same   |
| gauge     | `..` (`.._percent` if so named)    | `..`                                           |
| counter   | `.._total`                         | -                                              |
| histogram | `..{quantile=}`, `.._count`        | the same; and `.._sum`                         |

Where both dialects have one name there is one family. A label in camel case is given in lower case as well, on the same
series: two series would double every sum. Histograms of the request stages also come as true Prometheus histograms, in
seconds, under `kafka_network_requestmetrics_<stage>_seconds`.

What is not a counter or summary to Prometheus' rules (Confluent's names for counts) is untyped.

Threads: `render` by the HTTP thread; prometheus_client is imported at the first scrape, since it takes 12 MB.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from metrics.catalogue import Kind, Metric
from metrics.meters import QUANTILES, Counter, Gauge, Histogram, HistogramSnapshot, Meter

if TYPE_CHECKING:
    from metrics.registry import Instrument, Labels, Registry

log = logging.getLogger("barnabas.metrics")

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Upper bounds of the true histograms, in seconds; each times 1000 is one of `meters.BOUNDS`.
SECONDS_BOUNDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)

#: Third spellings, beside camel case and lower case.
_EXTRA_LABELS: Final = {
    "networkProcessor": ("network_processor",),
    "clientSoftwareName": ("client_software_name",),
    "clientSoftwareVersion": ("client_software_version",),
}
#: MBean types that the dialects spell differently.
_EXTRA_TYPES: Final = {"socket-server-metrics": ("socket_server_metrics", "socketservermetrics")}

_reported: set[str] = set()  # owner: the HTTP thread


def base_names(row: Metric) -> tuple[str, ...]:
    """Return the row's name, in every spelling of its type, without what the kind adds."""
    group = row.group.replace(".", "_")
    name = row.name.lower().replace("-", "_")
    types = _EXTRA_TYPES.get(row.type, (row.type.lower().replace("-", "_"),))
    return tuple(f"{group}_{type_}_{name}" for type_ in types)


def family_names(row: Metric) -> list[str]:
    """Return the names of all series that a row leads to, in both dialects."""
    names = []
    for base in base_names(row):
        if row.kind is Kind.METER:
            names += [_without(base, "persec") + "_total", base]
        elif row.kind is Kind.RATIO:
            names += [_percent(base), base, base + "_oneminuterate"]
        elif row.kind is Kind.COUNTER:
            names.append(base + "_total")
        elif row.kind is Kind.HISTOGRAM:
            names += [base, base + "_count", base + "_sum"]
        else:
            names.append(base)
            if base.endswith("percent"):
                names.append(_percent(base))
    return names


def spelt(labels: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the labels that have a value, in every spelling."""
    result = {}
    for name, value in labels:
        if value != "":
            for spelling in (name, name.lower(), *_EXTRA_LABELS.get(name, ())):
                result[spelling] = value
    return result


def render(registry: Registry) -> bytes:
    """Return the page: every instrument of the registry, and what the process itself uses."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.process_collector import ProcessCollector

    page = CollectorRegistry(auto_describe=False)
    page.register(_Collector(registry))
    ProcessCollector(registry=page)
    return generate_latest(page)


class _Collector:
    """prometheus_client's view of the registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        from prometheus_client.metrics_core import Metric as Family

        now_s = self._registry.now_s()
        for row, instruments in self._registry.collect():
            page = _Row(Family, row)
            for labels, instrument in instruments:
                page.add(_labels(row, labels), instrument, now_s, self._registry)
            yield from page.families.values()


class _Row:
    """The families of one row, being filled."""

    def __init__(self, family_class: Any, row: Metric) -> None:
        self._class = family_class
        self._row = row
        self._bases = base_names(row)
        self.families: dict[str, Any] = {}

    def add(self, labels: dict[str, str], instrument: Instrument, now_s: float, registry: Registry) -> None:
        """Add the samples of one instrument."""
        if isinstance(instrument, Gauge):
            self._gauge(labels, instrument)
        elif isinstance(instrument, Counter):
            for base in self._bases:
                self._family(base, "counter").add_sample(base + "_total", labels, instrument.count)
        elif isinstance(instrument, Histogram):
            with registry.scraping():
                snapshot = instrument.snapshot(now_s)
            self._histogram(labels, snapshot)
        else:
            self._meter(labels, instrument, now_s, registry)

    def _gauge(self, labels: dict[str, str], gauge: Gauge) -> None:
        try:
            value = float(gauge.read())
        except Exception as error:  # a gauge is anyone's code, and one that fails must not take the page down
            if self._row.name not in _reported:
                _reported.add(self._row.name)
                log.warning("gauge %s cannot be read", self._row.name, exc_info=error)
            return
        for base in self._bases:
            for name in (base, _percent(base)) if base.endswith("percent") else (base,):
                # Why: to Prometheus' rules `_count` belongs to summaries, but Kafka has a gauge of that name.
                type_ = "unknown" if name.endswith("_count") else "gauge"
                self._family(name, type_).add_sample(name, labels, value)

    def _meter(self, labels: dict[str, str], meter: Meter, now_s: float, registry: Registry) -> None:
        for base in self._bases:
            if self._row.kind is Kind.RATIO:
                with registry.scraping():
                    share = meter.rates(now_s)[0] / 1e9
                for name in (_percent(base), base, base + "_oneminuterate"):
                    self._family(name, "gauge").add_sample(name, labels, share)
            else:
                count = meter.count
                counter = _without(base, "persec")
                self._family(counter, "counter").add_sample(counter + "_total", labels, count)
                self._family(base, "unknown").add_sample(base, labels, count)

    def _histogram(self, labels: dict[str, str], snapshot: HistogramSnapshot) -> None:
        for base in self._bases:
            family = self._family(base, "summary")
            for quantile, value in zip(QUANTILES, snapshot.quantiles(QUANTILES), strict=True):
                family.add_sample(base, {**labels, "quantile": quantile}, value)
            family.add_sample(base + "_count", labels, snapshot.count)
            family.add_sample(base + "_sum", labels, snapshot.sum)
        if self._row.buckets:
            self._true_histogram(labels, snapshot)

    def _true_histogram(self, labels: dict[str, str], snapshot: HistogramSnapshot) -> None:
        name = f"{self._row.group.replace('.', '_')}_{self._row.type.lower()}_{self._row.buckets}_seconds"
        family = self._family(name, "histogram")
        for bound in SECONDS_BOUNDS:
            family.add_sample(name + "_bucket", {**labels, "le": f"{bound:g}"}, snapshot.cumulative(bound * 1000.0))
        family.add_sample(name + "_bucket", {**labels, "le": "+Inf"}, snapshot.count)
        family.add_sample(name + "_count", labels, snapshot.count)
        family.add_sample(name + "_sum", labels, snapshot.sum / 1000.0)

    def _family(self, name: str, type_: str) -> Any:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = self._class(name, self._row.doc, type_)
        return family


def _labels(row: Metric, values: Labels) -> dict[str, str]:
    return spelt(zip(row.labels, values, strict=True))


def _without(name: str, ending: str) -> str:
    return name.removesuffix(ending)


def _percent(base: str) -> str:
    return _without(base, "percent") + "_percent"
