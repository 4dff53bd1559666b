"""THE table of metrics: its rows, and that what the code uses is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.metrics import absent, catalogue
from barnabas.metrics.catalogue import METRICS, Kind, Metric
from barnabas.metrics.names import family_names

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("row", METRICS, ids=lambda row: f"{row.type}:{row.name}")
def test_every_row_is_sound(row: Metric) -> None:
    assert row.doc.endswith(".")
    assert catalogue.find(row.group, row.type, row.name) is row
    if row.buckets:
        assert row.kind in (Kind.HISTOGRAM, Kind.TIMER)
        assert row.buckets.endswith("_seconds") == (row.unit == "ms")
    for name in family_names(row):
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", name)


def test_no_two_rows_lead_to_one_name() -> None:
    names = [name for row in METRICS for name in family_names(row)]
    assert len(names) == len(set(names))


def test_rows_that_the_code_names_exist() -> None:
    named = set()
    for package in ("broker", "controller", "barnabas", "metrics"):
        for path in (ROOT / package).rglob("*.py"):
            named |= set(re.findall(r"\bcatalogue\.([A-Z][A-Z_]+)\b", path.read_text()))
    missing = sorted(
        name for name in named - {"METRICS"} if not isinstance(getattr(catalogue, name, None), (Metric, dict))
    )
    assert missing == []
    with pytest.raises(KeyError):
        catalogue.find("kafka.server", "X", "Y")


# --- against Apache Kafka's own list

MBEANS = (ROOT / "tests" / "data" / "apache-kafka-mbeans.tsv").read_text().splitlines()
#: Yammer's own attributes of gauges, meters, histograms: what a kind has, whole.
PROPERTY = re.compile(r"type=([^,]+)(?:,name=([^,]+))?")


def mbean_names() -> list[tuple[str, str, str]]:
    """MBean, type and name: one for each MBean of Yammer's, one for each attribute of the client library's."""
    names = []
    for line in MBEANS:
        mbean, _, attributes = line.partition("\t")
        found = PROPERTY.search(mbean)
        assert found, mbean
        type_, name = found[1], found[2]
        names += [(mbean, type_, each) for each in ([name] if name else attributes.split(","))]
    return names


def why_absent(mbean: str, type_: str, name: str) -> str | None:
    is_selector = type_ == "socket-server-metrics" or ("-metrics" in type_ and type_ in SELECTOR_TYPES)
    return (
        absent.reason_for(mbean)
        or absent.ATTRIBUTES.get((type_, name))
        or (absent.SELECTOR_ATTRIBUTES.get(name) if is_selector else None)
        or (absent.NODE_CHANNEL_ATTRIBUTES.get(name) if is_selector and type_ != "socket-server-metrics" else None)
    )


SELECTOR_TYPES = {f"{name}-metrics" for name in catalogue.CHANNELS}


def has_row(mbean: str, type_: str, name: str) -> bool:
    try:
        catalogue.find(mbean.partition(":")[0], type_, name)
    except KeyError:
        return False
    return True


@pytest.mark.parametrize(("mbean", "type_", "name"), mbean_names(), ids=lambda value: value[-40:])
def test_what_kafka_measures_is_measured_or_has_a_reason_not_to_be(mbean: str, type_: str, name: str) -> None:
    reason = why_absent(mbean, type_, name)
    if reason and "delayedOperation=" in mbean:
        return  # one of a row's lines is absent, not the row
    assert has_row(mbean, type_, name) != bool(reason), f"{mbean} {name}: {reason or 'neither row nor reason'}"


def test_reasons_are_of_mbeans_that_there_are() -> None:
    mbeans = [line.partition("\t")[0] for line in MBEANS]
    unknown = [pattern for pattern in absent.MBEANS if not any(absent._matches(pattern, mbean) for mbean in mbeans)]
    assert unknown == []
    attributes = {(type_, name) for _, type_, name in mbean_names()}
    assert sorted(absent.ATTRIBUTES.keys() - attributes) == []


def test_names_that_dashboards_query_are_there_or_have_a_reason_not_to_be() -> None:
    lines = (ROOT / "tests" / "data" / "dashboard-metrics.txt").read_text().splitlines()
    queried = {line.split()[1] for line in lines}
    named = {name for row in METRICS for name in family_names(row)}
    unnamed = {name for name in queried - named if not name.startswith((absent.JVM_PREFIX, "process_"))}
    assert sorted(unnamed - absent.DASHBOARD_NAMES.keys()) == []
    assert sorted(absent.DASHBOARD_NAMES.keys() - unnamed) == []
