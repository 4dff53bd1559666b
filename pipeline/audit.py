"""audit: reads both topics and the Parquet files, and compares them with the source.

1. Each flight is in `flights` exactly once, with the values of the source.
2. The last figures of each origin, carrier and hour in `delays`, and those in Parquet, equal the figures computed
   directly from the source (`pipeline.flights.expected_delays`, plain Python) to the last bit: the delays are whole
   minutes, so the sums are exact.

Exits with 1 and one line for each finding if they differ; draws the picture if they do not.
"""

from __future__ import annotations

import calendar
import json
import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from pipeline import picture
from pipeline import spark as shared
from pipeline.delays import TOPIC as DELAYS
from pipeline.flights import DelayFigures, DelayKey, airport_names, expected_delays, read_flights
from pipeline.ingest import TOPIC as FLIGHTS

SHOWN = 5  # examples per finding


def check_flights(records: DataFrame, months: int) -> list[str]:
    """Findings about the topic `flights`; none if it holds each flight of the source exactly once."""
    columns = shared.FLIGHT.fieldNames()
    rows = shared.flights_of(records).withColumn("event_time", f.date_format("event_time", shared.HOUR_FORMAT))
    found = Counter(tuple(row[name] for name in columns) for row in rows.select(*columns).toLocalIterator())
    source = Counter(tuple(getattr(flight, name) for name in columns) for flight in read_flights(months))
    findings = []
    missing, extra = source - found, found - source
    if missing:
        findings.append(f"{missing.total()} flights are missing or differ in `{FLIGHTS}`, e.g. {_examples(missing)}")
    if extra:
        findings.append(f"{extra.total()} records of `{FLIGHTS}` are too many or differ, e.g. {_examples(extra)}")
    return findings


def _examples(counts: Counter[tuple[object, ...]]) -> str:
    return ", ".join(str(row[0]) for row in list(counts)[:SHOWN])


def latest_in_topic(records: DataFrame) -> dict[DelayKey, DelayFigures]:
    """The last record of each key of `delays`. All records of a key are in one partition, so offsets order them."""
    last = Window.partitionBy("key").orderBy(f.col("offset").desc())
    rows = records.withColumn("age", f.row_number().over(last)).where("age = 1").select(f.col("value").cast("string"))
    return dict(_entry(json.loads(row.value)) for row in rows.toLocalIterator())


def latest_in_parquet(spark: SparkSession, work_dir: Path) -> dict[DelayKey, DelayFigures]:
    """The figures of the highest micro-batch of each key in the Parquet files."""
    last = Window.partitionBy("origin", "carrier", "hour").orderBy(f.col("batch_id").desc())
    rows = spark.read.parquet(str(work_dir / "parquet" / DELAYS))
    rows = rows.withColumn("age", f.row_number().over(last)).where("age = 1")
    return dict(_entry(row.asDict()) for row in rows.toLocalIterator())


def _entry(row: dict[str, object]) -> tuple[DelayKey, DelayFigures]:
    key = (str(row["origin"]), str(row["carrier"]), str(row["hour"]))
    return key, DelayFigures(row["departed"], row["mean"], row["p95"])  # type: ignore[arg-type]


def check_delays(name: str, found: dict[DelayKey, DelayFigures], expected: dict[DelayKey, DelayFigures]) -> list[str]:
    """Findings about one copy of the figures; none if it equals the expected ones."""
    wrong = [key for key in expected if found.get(key) != expected[key]]
    unknown = [key for key in found if key not in expected]
    findings = []
    if wrong:
        shown = "; ".join(f"{'|'.join(key)}: {found.get(key)}, not {expected[key]}" for key in wrong[:SHOWN])
        findings.append(f"{len(wrong)} of {len(expected)} figures in {name} are wrong: {shown}")
    if unknown:
        findings.append(f"{len(unknown)} figures in {name} have no flights, e.g. {unknown[:SHOWN]}")
    return findings


def routes(flights: DataFrame, order: str, least_flights: int = 1) -> list[Row]:
    """The top ten routes by `order` ("flights" or "mean_delay") that have at least `least_flights` flights."""
    grouped = flights.groupBy("origin", "dest").agg(
        f.count("*").alias("flights"), f.avg("dep_delay").alias("mean_delay")
    )
    return grouped.where(f.col("flights") >= least_flights).orderBy(f.col(order).desc(), "origin", "dest").take(10)


def run(spark: SparkSession, bootstrap: str, work_dir: Path, months: int) -> list[str]:
    """Audit everything, report the tables and the picture, and return the findings."""
    flight_records = shared.read_topic(spark, bootstrap, FLIGHTS).persist()
    expected = expected_delays(read_flights(months))
    findings = check_flights(flight_records, months)
    shared.report(job="audit", step=f"topic {FLIGHTS}", records=flight_records.count(), findings=len(findings))
    in_topic = latest_in_topic(shared.read_topic(spark, bootstrap, DELAYS))
    findings += check_delays(f"topic `{DELAYS}`", in_topic, expected)
    shared.report(job="audit", step=f"topic {DELAYS}", records=len(in_topic), findings=len(findings))
    in_parquet = latest_in_parquet(spark, work_dir)
    findings += check_delays("Parquet", in_parquet, expected)
    shared.report(job="audit", step="Parquet", records=len(in_parquet), findings=len(findings))
    names = airport_names()
    flights = shared.flights_of(flight_records)
    for title, rows in (
        ("busiest", routes(flights, "flights")),
        ("latest", routes(flights, "mean_delay", 100 * months // 12)),
    ):
        shared.report(job="audit", title=title, routes=[_route(row, names) for row in rows])
    if not findings:
        png, page = picture.draw(in_parquet, work_dir, f"Departure delays out of New York, {period(months)}")
        shared.report(job="audit", picture=str(png), page=str(page))
    return findings


def period(months: int) -> str:
    """The months, in words."""
    last = calendar.month_name[months]
    return "2013" if months == 12 else f"{last} 2013" if months == 1 else f"January to {last} 2013"


def _route(row: Row, names: dict[str, str]) -> dict[str, object]:
    return {
        "origin": row.origin,
        "dest": row.dest,
        "name": names.get(row.dest, row.dest),
        "flights": row.flights,
        "mean_delay": row.mean_delay,
    }


def main() -> None:
    """Entry point of `python -m pipeline.audit`."""
    options = shared.arguments("Compare the topics and the Parquet files with the source").parse_args()
    with shared.session("barnabas-audit", options.work_dir) as spark:
        findings = run(spark, options.bootstrap, options.work_dir, options.months)
    for finding in findings:
        print(f"audit: {finding}", file=sys.stderr)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
