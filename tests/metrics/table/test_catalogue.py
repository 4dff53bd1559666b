"""THE table of metrics: its rows, their use in code, and Apache Kafka's own list of MBeans.

Tests catalogue.py, row.py, absent.py, rows_broker.py, rows_controller.py, rows_coordinators.py, rows_network.py,
rows_own.py, rows_share.py and rows_storage.py of metrics/table.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.metrics.names import family_names
from barnabas.metrics.table import absent, catalogue
from barnabas.metrics.table.catalogue import METRICS, Kind, Metric

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("row", METRICS, ids=lambda row: f"{row.type}:{row.name}")
def test_every_row_is_valid(row: Metric) -> None:
    assert row.doc.endswith(".")
    assert catalogue.find(row.group, row.type, row.name) is row
    if row.buckets:
        assert row.kind in (Kind.HISTOGRAM, Kind.TIMER)
        assert row.buckets.endswith("_seconds") == (row.unit == "ms")
    for name in family_names(row):
        assert re.fullmatch(r"[a-z_][a-z0-9_]*", name)


def test_no_two_rows_share_a_name() -> None:
    names = [name for row in METRICS for name in family_names(row)]
    assert len(names) == len(set(names))


def test_rows_named_in_code_exist() -> None:
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
#: The attributes of Yammer's gauges, meters and histograms, which a kind has as a whole.
PROPERTY = re.compile(r"type=([^,]+)(?:,name=([^,]+))?")


def mbean_names() -> list[tuple[str, str, str]]:
    """Yield MBean, type and name: one for each MBean of Yammer, one for each attribute of the client library's."""
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
def test_every_mbean_of_kafka_is_a_row_or_has_a_reason(mbean: str, type_: str, name: str) -> None:
    reason = why_absent(mbean, type_, name)
    if reason and "delayedOperation=" in mbean:
        return  # one series of a row is absent, not the row
    assert has_row(mbean, type_, name) != bool(reason), f"{mbean} {name}: {reason or 'neither row nor reason'}"


def test_reasons_name_existing_mbeans() -> None:
    mbeans = [line.partition("\t")[0] for line in MBEANS]
    unknown = [pattern for pattern in absent.MBEANS if not any(absent._matches(pattern, mbean) for mbean in mbeans)]
    assert unknown == []
    attributes = {(type_, name) for _, type_, name in mbean_names()}
    assert sorted(absent.ATTRIBUTES.keys() - attributes) == []


def test_queried_names_exist_or_have_a_reason() -> None:
    lines = (ROOT / "tests" / "data" / "dashboard-metrics.txt").read_text().splitlines()
    queried = {line.split()[1] for line in lines}
    named = {name for row in METRICS for name in family_names(row)}
    unnamed = {name for name in queried - named if not name.startswith((absent.JVM_PREFIX, "process_"))}
    assert sorted(unnamed - absent.DASHBOARD_NAMES.keys()) == []
    assert sorted(absent.DASHBOARD_NAMES.keys() - unnamed) == []
