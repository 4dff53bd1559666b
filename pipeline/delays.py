"""delays: departure-delay figures by origin, carrier and hour, updated while the flights stream in.

The job reads `flights`, joins the airports for the origin's name, and aggregates by one-hour windows of the event time.
It runs in update mode: each micro-batch emits the groups that it changed, as upserts. They go to the topic `delays`
(the last record of a key counts) and to Parquet (`batch_id=N`; the highest batch of a key counts). After a crash, a
repeated micro-batch computes the same rows from the same offsets and overwrites or repeats them, so the result is the
same.

The watermark bounds the state. It must exceed the difference in event time between the six partitions. The producer
sends one week after another and waits for each, so the difference is at most a week.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline import spark as shared
from pipeline.flights import stage_airports
from pipeline.ingest import TOPIC as FLIGHTS

TOPIC = "delays"
WATERMARK = "14 days"
POLL_SECONDS = 1


def figures(spark: SparkSession, flights: DataFrame, airports_csv: Path) -> DataFrame:
    """The figures of each origin, carrier and hour: departed flights, mean and p95 delay in minutes."""
    airports = spark.read.option("header", "true").csv(str(airports_csv))
    origins = f.broadcast(airports.select(f.col("faa").alias("origin"), f.col("name").alias("origin_name")))
    return (
        flights.withWatermark("event_time", WATERMARK)
        .join(origins, "origin", "left")
        .groupBy(f.window("event_time", "1 hour"), "origin", "origin_name", "carrier")
        .agg(
            f.count("dep_delay").alias("departed"),
            f.avg("dep_delay").alias("mean"),
            f.percentile_approx("dep_delay", 0.95, 10_000).cast("double").alias("p95"),
        )
        .select(
            "origin",
            "origin_name",
            "carrier",
            f.date_format("window.start", shared.HOUR_FORMAT).alias("hour"),
            "departed",
            "mean",
            "p95",
        )
    )


def run(spark: SparkSession, bootstrap: str, work_dir: Path, until: Path | None) -> None:
    """Process `flights` as they arrive. With `until`, stop once that file exists and all records are processed."""
    airports = stage_airports(work_dir / "input")
    records = (
        spark.readStream.format("kafka")
        .options(**shared.connection(bootstrap))
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .load()
    )
    sink = _Sink(bootstrap, work_dir / "parquet" / TOPIC)
    query = (
        figures(spark, shared.flights_of(records), airports)
        .writeStream.outputMode("update")
        .foreachBatch(sink.write)
        .option("checkpointLocation", str(work_dir / "checkpoints" / "delays"))
        .start()
    )
    while until is not None and not until.exists():
        if query.awaitTermination(POLL_SECONDS):
            return
    if until is None:
        shared.await_end(query)
    query.processAllAvailable()
    query.stop()


class _Sink:
    """Writes the changed groups of one micro-batch to the topic and to Parquet."""

    def __init__(self, bootstrap: str, parquet: Path) -> None:
        self._bootstrap = bootstrap
        self._parquet = parquet

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch; a repetition writes the same rows again."""
        batch = batch.persist()
        records = batch.select(
            f.concat_ws("|", "origin", "carrier", "hour").cast("binary").alias("key"),
            f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).cast("binary").alias("value"),
            shared.batch_header(batch_id).alias("headers"),
        )
        shared.write_topic(records, self._bootstrap, TOPIC)
        batch.coalesce(1).write.mode("overwrite").parquet(str(self._parquet / f"batch_id={batch_id}"))
        shared.report(job="delays", batch=batch_id, groups=batch.count())
        batch.unpersist()


def main() -> None:
    """Entry point of `python -m pipeline.delays`."""
    parser: argparse.ArgumentParser = shared.arguments("Keep delay figures up to date from the topic `flights`")
    parser.add_argument("--until", type=Path, help="stop when this file exists and all flights are processed")
    options = parser.parse_args()
    with shared.session("barnabas-delays", options.work_dir) as spark:
        run(spark, options.bootstrap, options.work_dir, options.until)


if __name__ == "__main__":
    main()
