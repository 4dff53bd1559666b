"""A real Prometheus on a real cluster under load: no panel is empty, no name of public dashboards is missing."""

from __future__ import annotations

import contextlib
import math
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.metrics.names import family_names
from barnabas.metrics.table import absent
from barnabas.metrics.table.catalogue import METRICS
from tests.dashboards.conftest import GROUP, LAGGING_GROUP, PARTITIONS, TIMEOUT_MS, TOPIC, Prometheus
from tests.support.cluster import BarnabasCluster
from tests.support.docker.compose_cluster import dashboards
from tests.support.docker.images import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.needs("prometheus", "promtool")

VARIABLES = {"$cluster": ".*", "$broker": ".*", "$topic": ".*", "$group": ".*", "$__rate_interval": "20s"}
_LIMITED = "a client of the controller that has controller_mutation_rate"
_PUSHED = "a client that pushes its metrics (tests/clients/test_telemetry.py)"
_SHARED = "a share group that reads"
#: Rows without series in a healthy cluster under this load, and what they need.
SELDOM = {
    "slow": "a request that takes longer than barnabas.slow.request.ms",
    **dict.fromkeys(("tokens", "mutation-rate", "throttle-time"), _LIMITED),
    **dict.fromkeys(("throttle", "plugin-export", "plugin-export-time", "plugin-error"), _PUSHED),
    **dict.fromkeys(("TopicPartitionsAcquireTimeMs", "TopicPartitionsFetchRatio", "last-pruned-offset"), _SHARED),
}
#: The same of whole types of rows.
SELDOM_TYPES = {"plugins": "an authorizer", "tls": "a listener with TLS", "SharePartitionMetrics": _SHARED}


def panels() -> Iterator[tuple[str, str]]:
    """Yield title and expression of each query of each panel, with values for the dashboards' variables."""
    for name, board in dashboards().items():
        for panel in board["panels"]:
            for target in panel.get("targets") or ():
                expression = target["expr"]
                for variable, value in VARIABLES.items():
                    expression = expression.replace(variable, value)
                yield f"{name}: {panel['title']}: {target['legendFormat']}", expression


def vanishes(what: Callable[[], list[str]]) -> None:
    """Wait until the list is empty; fail with its content otherwise."""
    with contextlib.suppress(AssertionError):
        eventually("nothing is left", lambda: not what(), TIMEOUT_MS)
    assert what() == []


def has_number(result: list[dict[str, Any]]) -> bool:
    return any(math.isfinite(float(series["value"][1])) for series in result)


def test_every_process_is_scraped(prometheus: Prometheus) -> None:
    def up() -> dict[str, str]:
        return {series["metric"]["instance"]: series["metric"]["job"] for series in prometheus.query("up == 1")}

    brokers = {f"broker-{number}": "kafka-broker" for number in range(3)}
    expected = {**brokers, "controller-100": "kafka-controller"}
    eventually("all four are up", lambda: up() == expected, TIMEOUT_MS)


def test_no_panel_is_empty(prometheus: Prometheus) -> None:
    waiting = dict(panels())
    assert len(waiting) > 90

    def empty() -> list[str]:
        for title, expression in list(waiting.items()):
            if has_number(prometheus.query(expression)):
                del waiting[title]
        return sorted(waiting)

    vanishes(empty)


def test_queried_names_have_series_or_a_reason(prometheus: Prometheus) -> None:
    lines = (ROOT / "tests" / "data" / "dashboard-metrics.txt").read_text().splitlines()
    queried = {line.split()[1] for line in lines}
    wanted = {name for name in queried - absent.DASHBOARD_NAMES.keys() if not name.startswith(absent.JVM_PREFIX)}
    assert len(wanted) > 130

    def missing() -> list[str]:
        return sorted(wanted - set(prometheus.ask("label/__name__/values")))

    vanishes(missing)
    there = set(prometheus.ask("label/__name__/values"))
    assert sorted(absent.DASHBOARD_NAMES.keys() & there) == [], "what is there needs no reason not to be"


def test_every_row_of_the_catalogue_is_shown(prometheus: Prometheus) -> None:
    def missing() -> list[str]:
        there = set(prometheus.ask("label/__name__/values"))
        wanted = [row for row in METRICS if row.name not in SELDOM and row.type not in SELDOM_TYPES]
        return sorted(f"{row.type} {row.name}" for row in wanted if not there.intersection(family_names(row)))

    vanishes(missing)


def test_one_broker_exports_the_lag_of_all_groups(prometheus: Prometheus) -> None:
    def lags() -> dict[tuple[str, str], float]:
        series = prometheus.query("sum by (consumergroup, instance) (kafka_consumergroup_lag)")
        return {(s["metric"]["consumergroup"], s["metric"]["instance"]): float(s["value"][1]) for s in series}

    def is_whole() -> bool:
        found = lags()
        return (
            found.keys() == {(GROUP, "broker-0"), (LAGGING_GROUP, "broker-0")} and found[LAGGING_GROUP, "broker-0"] > 0
        )

    eventually("both groups, from one broker", is_whole, TIMEOUT_MS)
    (members,) = prometheus.query(f'kafka_consumergroup_members{{consumergroup="{GROUP}"}}')
    assert members["value"][1] == "1"
    (partitions,) = prometheus.query(f'kafka_topic_partitions{{topic="{TOPIC}"}}')
    assert partitions["value"][1] == str(PARTITIONS)

    def is_late() -> bool:
        (series,) = prometheus.query(f'kafka_consumer_lag_millis{{consumergroup="{LAGGING_GROUP}"}}')
        return float(series["value"][1]) > 0

    eventually("the group that stands still falls behind in time too", is_late, TIMEOUT_MS)


def test_a_sum_over_brokers_counts_everything_once(prometheus: Prometheus) -> None:
    """Each partition has one leader and three replicas, although labels have several spellings."""

    def counts() -> list[float]:
        names = ("leadercount", "partitioncount", "underreplicatedpartitions")
        return [float(prometheus.query(f"sum(kafka_server_replicamanager_{n})")[0]["value"][1]) for n in names]

    total = PARTITIONS + 6 + 6  # with __consumer_offsets and __transaction_state
    eventually("all replicas are counted", lambda: counts() == [total, 3 * total, 0], TIMEOUT_MS)


def test_a_healthy_cluster_raises_no_alert(prometheus: Prometheus) -> None:
    written = (ROOT / "dashboards" / "alerts.yml").read_text().count("- alert:")
    assert len(prometheus.ask("rules")["groups"][0]["rules"]) == written > 0
    assert [alert for alert in prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"] == []


def test_promtool_accepts_every_page(cluster: BarnabasCluster, prometheus: Prometheus) -> None:
    """Except for camel-case labels, which dashboards of jmx_exporter's dialect query."""
    for node in cluster.nodes.values():
        with urllib.request.urlopen(f"http://127.0.0.1:{node.metrics_port}/metrics", timeout=30) as answer:
            page = answer.read()
        result = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
        complaints = (result.stdout + result.stderr).decode().splitlines()
        assert [line for line in complaints if "label names should be written in 'snake_case'" not in line] == []
