"""The source data and the expected figures, without Spark."""

from __future__ import annotations

import csv
from pathlib import Path

from pipeline.flights import (
    COLUMNS,
    FLIGHTS_IN_2013,
    DelayFigures,
    Flight,
    expected_delays,
    read_flights,
    stage,
)


def flight(minute: int, dep_delay: int | None, flight_id: str = "x") -> Flight:
    return Flight(flight_id, f"2013-01-01T10:{minute:02}:00Z", "UA", 1, None, "EWR", "IAH", dep_delay, None, None, 1400)


def test_all_flights_are_read_and_each_has_a_unique_id() -> None:
    identities = [found.flight_id for found in read_flights()]
    assert len(identities) == FLIGHTS_IN_2013
    assert len(set(identities)) == FLIGHTS_IN_2013


def test_staged_files_are_in_schedule_order_and_hold_everything(tmp_path: Path) -> None:
    count = stage(tmp_path, months=1)
    files = sorted(tmp_path.glob("week-*.csv"))
    assert len(files) == count
    assert [file.stat().st_mtime for file in files] == sorted(file.stat().st_mtime for file in files)
    rows = [row for file in files for row in csv.DictReader(file.read_text().splitlines())]
    assert tuple(rows[0]) == COLUMNS
    assert [row["event_time"] for row in rows] == sorted(row["event_time"] for row in rows)
    assert {row["flight_id"] for row in rows} == {found.flight_id for found in read_flights(1)}


def test_staging_again_changes_no_file(tmp_path: Path) -> None:
    stage(tmp_path, months=1)
    (tmp_path / "week-00.csv").write_text("touched")
    stage(tmp_path, months=1)
    assert (tmp_path / "week-00.csv").read_text() == "touched"


def test_figures_are_nearest_rank_without_cancelled_flights() -> None:
    flights = [flight(minute, minute) for minute in range(1, 21)] + [flight(30, None)]
    assert expected_delays(iter(flights)) == {("EWR", "UA", "2013-01-01T10:00:00Z"): DelayFigures(20, 10.5, 19.0)}


def test_an_hour_without_departures_has_no_mean() -> None:
    assert expected_delays(iter([flight(0, None)])) == {
        ("EWR", "UA", "2013-01-01T10:00:00Z"): DelayFigures(0, None, None)
    }
