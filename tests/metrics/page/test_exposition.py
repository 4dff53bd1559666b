"""The /metrics page: both dialects, both formats, right values, and no complaint of Prometheus' own checker.

Tests exposition.py, collector.py and formats.py of metrics/page, and metrics/names.py.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from barnabas.common.clock import FakeClock
from barnabas.metrics.names import Dialect, family_names
from barnabas.metrics.page.exposition import Exposition, render
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.metrics.table import catalogue as c

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "reference" / "dashboard-metrics.txt"

#: Names that public dashboards query and this project has; a test below checks that they are really queried.
BUILT = [
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_underreplicated",
    "kafka_controller_controllereventmanager_eventqueueprocessingtimems",
    "kafka_controller_controllereventmanager_eventqueuetimems",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_controllerstats_uncleanleaderelectionspersec",
    "kafka_controller_kafkacontroller_activebrokercount",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_fencedbrokercount",
    "kafka_controller_kafkacontroller_globalpartitioncount",
    "kafka_controller_kafkacontroller_globaltopiccount",
    "kafka_controller_kafkacontroller_lastappliedrecordlagms",
    "kafka_controller_kafkacontroller_metadataerrorcount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead",
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty",
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    "kafka_log_log_logendoffset",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_size",
    "kafka_network_acceptor_acceptorblockedpercent",
    "kafka_network_requestchannel_requestqueuesize",
    "kafka_network_requestchannel_responsequeuesize",
    "kafka_network_requestmetrics_errorspersec",
    "kafka_network_requestmetrics_localtimems",
    "kafka_network_requestmetrics_localtimems_count",
    "kafka_network_requestmetrics_remotetimems",
    "kafka_network_requestmetrics_requestqueuetimems",
    "kafka_network_requestmetrics_requestspersec",
    "kafka_network_requestmetrics_responsequeuetimems",
    "kafka_network_requestmetrics_responsesendtimems",
    "kafka_network_requestmetrics_totaltimems",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_network_socketserver_networkprocessoravgidlepercent",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesinpersec",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_bytesoutpersec",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_fetchmessageconversions_total",
    "kafka_server_brokertopicmetrics_fetchmessageconversionspersec",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_messagesinpersec",
    "kafka_server_brokertopicmetrics_producemessageconversions_total",
    "kafka_server_brokertopicmetrics_producemessageconversionspersec",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalfetchrequestspersec",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequestspersec",
    "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
    "kafka_server_fetchsessioncache_numincrementalfetchsessions",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    "kafka_server_kafkaserver_brokerstate",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_server_replicafetchermanager_maxlag",
    "kafka_server_replicafetchermanager_minfetchrate",
    "kafka_server_replicamanager_isrexpands_total",
    "kafka_server_replicamanager_isrexpandspersec",
    "kafka_server_replicamanager_isrshrinks_total",
    "kafka_server_replicamanager_isrshrinkspersec",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
    "kafka_server_socketservermetrics_connection_close_rate",
    "kafka_server_socketservermetrics_connection_count",
    "kafka_server_socketservermetrics_connection_creation_rate",
    "kafka_server_socketservermetrics_connections",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
]


KINDS: dict[c.Kind, Callable[[Registry, c.Metric, dict[str, str]], None]] = {
    c.Kind.COUNTER: lambda registry, row, labels: registry.counter(row, **labels).inc(),
    c.Kind.HISTOGRAM: lambda registry, row, labels: registry.histogram(row, **labels).update(3.3),
    c.Kind.TIMER: lambda registry, row, labels: registry.timer(row, **labels).update(3.3),
    c.Kind.METER: lambda registry, row, labels: registry.meter(row, **labels).mark(),
    c.Kind.RATIO: lambda registry, row, labels: registry.meter(row, **labels).mark(),
    c.Kind.SENSOR: lambda registry, row, labels: registry.sensor(row, **labels).record(),
    c.Kind.AVG_MAX: lambda registry, row, labels: registry.avg_max(row, **labels).record(3.3),
}


def full_registry() -> Registry:
    """Return a registry with one instrument for every row, with all labels."""
    registry = Registry(FakeClock())
    for row in c.METRICS:
        labels = dict.fromkeys(row.labels, "1")
        if row.kind is c.Kind.GAUGE:
            registry.gauge(row, lambda: 1.0, **labels)
        elif row.kind is c.Kind.TEXT:
            registry.text(row, lambda labels=labels: tuple(labels))  # type: ignore[misc]
        else:
            KINDS[row.kind](registry, row, labels)
    return registry


def series(page: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def value(page: bytes, name: str, **labels: str) -> float:
    return series(page)[name, frozenset(labels.items())]


def test_queried_names_exist() -> None:
    names = {name for name, _ in series(render(full_registry()))}
    assert sorted(set(BUILT) - names) == []
    if REFERENCE.exists():
        queried = {line.split()[1] for line in REFERENCE.read_text().splitlines() if line and line[0] != "#"}
        assert sorted(set(BUILT) - queried) == []


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_page() -> None:
    """Except for camel-case labels, which dashboards of jmx_exporter's dialect query."""
    result = subprocess.run(
        ["promtool", "check", "metrics"], input=render(full_registry()), capture_output=True, check=False
    )
    complaints = (result.stdout + result.stderr).decode().splitlines()
    assert [line for line in complaints if "label names should be written in 'snake_case'" not in line] == []


def test_openmetrics_has_the_same_series_and_passes_its_parser() -> None:
    registry = full_registry()
    registry.gauge(c.LEADER_COUNT, lambda: 7)
    for dialect in Dialect:
        exposition = Exposition(registry, dialect)
        content_type, page = exposition.page(OPENMETRICS)
        assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        found = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in openmetrics_families(canonical(page.decode()))
            for sample in family.samples
        }
        expected = series(canonical(exposition.render().decode()).encode())
        changing = {name for name, _ in found if name.startswith("barnabas_metrics_scrape")}
        assert {key: number for key, number in found.items() if key[0] not in changing} == {
            key: number for key, number in expected.items() if key[0] not in changing
        }


def canonical(page: str) -> str:
    """Return the page with bounds and quantiles as OpenMetrics spells them; dashboards query Kafka's 0.50."""
    return re.sub(r'(quantile|le)="([^+"]*)"', lambda found: f'{found[1]}="{floatToGoString(found[2])}"', page)


def test_types_and_help_in_both_formats() -> None:
    registry = Registry()
    registry.meter(c.BYTES_IN_PER_SEC, topic="t").mark(7)
    help_text = c.BYTES_IN_PER_SEC.doc
    base = "kafka_server_brokertopicmetrics_bytesinpersec"
    for dialect, kind in ((Dialect.BOTH, "unknown"), (Dialect.STRIMZI, "counter")):
        exposition = Exposition(registry, dialect)
        text = exposition.render().decode()
        assert f'# HELP {base}_total {help_text}\n# TYPE {base}_total counter\n{base}_total{{topic="t"}} 7.0\n' in text
        open_text = exposition.page(OPENMETRICS)[1].decode()
        name = base if kind == "counter" else f"{base}_total"
        assert f'# HELP {name} {help_text}\n# TYPE {name} {kind}\n{base}_total{{topic="t"}} 7.0\n' in open_text
        assert "_created" not in text + open_text


@pytest.mark.parametrize(
    "accept",
    ["text/plain;version=1.x", "application/openmetrics-text; version=abc", "application/openmetrics-text;version=²"],
)
def test_a_version_that_cannot_be_read_gets_the_text_format(accept: str) -> None:
    content_type, _ = Exposition(Registry()).page(accept)
    assert content_type.startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0"])
def test_a_page_that_fails_releases_the_instruments(accept: str) -> None:
    """The live page takes the same lock: it must not wait until the exception is collected as garbage."""
    registry = Registry()
    registry.gauge(c.BROKER_STATE, cast("Callable[[], float]", lambda: "no number"))
    with pytest.raises(ValueError, match="no number") as failure:
        Exposition(registry).page(accept)
    assert not registry.scraping.locked(), failure


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text;version=1.0.0"])
def test_a_page_shows_changes_since_the_last_page(accept: str) -> None:
    """Lines are kept from page to page. Each page must equal that of a new exposition."""
    registry = Registry(FakeClock())
    numbers: dict[tuple[str, ...], list[float]] = {("t", str(n)): [n, 10 * n] for n in range(5)}
    registry.table((c.LOG_END_OFFSET, c.LOG_SIZE), lambda: list(numbers.items()))
    histogram = registry.histogram(c.REQUEST_BYTES, request="Fetch")
    exposition = Exposition(registry)

    def check() -> None:
        assert exposition.page(accept)[1] == Exposition(registry).page(accept)[1]

    check()
    numbers["t", "3"] = [3, math.nan]
    check()
    numbers["t", "3"] = [True, math.inf]
    histogram.update(17)
    check()
    del numbers["t", "1"]
    check()
    numbers["u\u2028\n", "1"] = [0.25, -1]
    check()
    numbers["t", "0"] = [1e17, 2e-9]
    check()


def test_a_meter_in_both_dialects() -> None:
    registry = Registry()
    registry.meter(c.BYTES_IN_PER_SEC).mark(30)
    registry.meter(c.BYTES_IN_PER_SEC, topic="t").mark(10)
    page = render(registry)
    for name in ("kafka_server_brokertopicmetrics_bytesin_total", "kafka_server_brokertopicmetrics_bytesinpersec"):
        assert value(page, name) == 30
        assert value(page, name, topic="t") == 10


def test_one_series_carries_every_spelling_of_a_label() -> None:
    registry = Registry()
    registry.gauge(c.PURGATORY_SIZE, lambda: 4, delayedOperation="Fetch")
    name = "kafka_server_delayedoperationpurgatory_purgatorysize"
    found = [key for key in series(render(registry)) if key[0] == name]
    assert found == [(name, frozenset({("delayedOperation", "Fetch"), ("delayedoperation", "Fetch")}))]


def test_the_idle_share_is_a_one_minute_rate() -> None:
    clock = FakeClock()
    registry = Registry(clock)
    idle = registry.meter(c.REQUEST_HANDLER_AVG_IDLE_PERCENT)
    idle.mark(5_000_000_000)
    clock.advance_ms(10_000)
    page = render(registry)
    base = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle"
    for name in (base + "_percent", base + "percent_oneminuterate"):
        assert value(page, name) == pytest.approx(0.5)


def test_request_times() -> None:
    registry = Registry()
    requests = RequestMetrics(registry)
    for _ in range(10):
        requests.recorder().record(
            "Fetch",
            17,
            (1_000_000, 2_000_000, 500_000_000, 0, 10_000, 100_000),
            size_bytes=100,
            is_follower=False,
            ok_count=1,
        )
    requests.error("Fetch", "OFFSET_OUT_OF_RANGE", 3)
    page = render(registry)
    base = "kafka_network_requestmetrics"
    for request in ("Fetch", "FetchConsumer"):
        assert value(page, f"{base}_localtimems_count", request=request) == 10
        assert value(page, f"{base}_totaltimems_sum", request=request) == pytest.approx(5031.1)
        assert value(page, f"{base}_localtimems", request=request, quantile="0.99") == pytest.approx(2, rel=0.25)
        assert value(page, f"{base}_throttletimems", request=request, quantile="0.50") < 0.001
        assert value(page, f"{base}_requests_total", request=request, version="17") == 10
        assert value(page, f"{base}_request_remote_time_seconds_bucket", request=request, le="0.25") == 0
        assert value(page, f"{base}_request_remote_time_seconds_bucket", request=request, le="0.5") == 10
        assert value(page, f"{base}_request_remote_time_seconds_sum", request=request) == pytest.approx(5)
    assert value(page, f"{base}_errorspersec", request="Fetch", error="NONE") == 10
    assert value(page, f"{base}_errorspersec", request="Fetch", error="OFFSET_OUT_OF_RANGE") == 3
    assert not any(("request", "FetchFollower") in labels for _, labels in series(page))


def test_a_page_that_fails_leaves_no_number_to_the_next_one() -> None:
    registry = Registry()
    numbers: dict[str, object] = {"leaders": 1, "state": 3}
    registry.gauge(c.LEADER_COUNT, lambda: cast("float", numbers["leaders"]))
    registry.gauge(c.BROKER_STATE, lambda: cast("float", numbers["state"]))
    exposition = Exposition(registry)
    exposition.render()
    numbers.update(leaders=2, state="no number")
    with pytest.raises(ValueError, match="no number"):
        exposition.render()
    numbers.update(leaders=1, state=3)
    assert value(exposition.render(), "kafka_server_replicamanager_leadercount") == 1


def test_a_failing_gauge_loses_only_its_own_series(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    registry.gauge(c.BROKER_STATE, lambda: 1 / 0)
    registry.gauge(c.LEADER_COUNT, lambda: 7)
    exposition = Exposition(registry)
    for _ in range(2):
        page = exposition.render()
        assert value(page, "kafka_server_replicamanager_leadercount") == 7
        assert b"brokerstate" not in page
    assert caplog.text.count("BrokerState cannot be read") == 1


def test_label_values_are_escaped() -> None:
    registry = Registry()
    awkward = 'a "quoted" \\ name\nin two lines'
    registry.gauge(c.LOG_DIRECTORY_OFFLINE, lambda: 0, logDirectory=awkward)
    name = "kafka_log_logmanager_logdirectoryoffline"
    assert value(render(registry), name, logDirectory=awkward, logdirectory=awkward) == 0


#: The owners of dashboards in tests/data/dashboard-metrics.txt, and the dialect for each.
DIALECTS = {
    "strimzi": Dialect.STRIMZI,
    "smr": Dialect.STRIMZI,  # Strimzi's own reporter, beside jmx_exporter
    "confluent": Dialect.CONFLUENT,
    "grafana": Dialect.BOTH,
}


@pytest.mark.parametrize("whose", sorted({"strimzi", "confluent"}))
def test_a_dialect_alone_has_all_that_its_dashboards_query(whose: str) -> None:
    lines = (Path(__file__).resolve().parents[2] / "data" / "dashboard-metrics.txt").read_text().splitlines()
    dialect = Dialect(whose)
    asked = {name for user, name in (line.split()[:2] for line in lines) if DIALECTS[user] is dialect}
    every = {name for row in c.METRICS for name in family_names(row)}
    alone = {name for row in c.METRICS for name in family_names(row, dialect)}
    assert len(asked & every) > 25
    assert sorted((asked & every) - alone) == []
    assert len(alone) < 0.85 * len(every)


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        (Dialect.STRIMZI, {"_bytesin_total", "_bytesinpersec_total"}),
        (Dialect.CONFLUENT, {"_bytesinpersec"} | {f"_bytesinpersec_{n}minuterate" for n in ("one", "five", "fifteen")}),
    ],
)
def test_a_page_in_one_dialect(dialect: Dialect, names: set[str]) -> None:
    registry = Registry()
    registry.meter(c.BYTES_IN_PER_SEC, topic="").mark(7)
    page = Exposition(registry, dialect).render().decode()
    shown = {line.split()[0] for line in page.splitlines() if "_bytesin" in line and not line.startswith("#")}
    assert {f"kafka_server_brokertopicmetrics{name}" for name in names} <= shown
    other = {Dialect.STRIMZI: "_oneminuterate", Dialect.CONFLUENT: "_total"}[dialect]
    assert [name for name in shown if name.endswith(other)] == []
