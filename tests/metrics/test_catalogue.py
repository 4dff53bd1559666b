"""THE table of metrics: its rows, and that what the code uses is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from metrics import catalogue
from metrics.catalogue import METRICS, Kind, Metric
from metrics.names import family_names

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
