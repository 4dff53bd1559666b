"""ingest: produces the flights to the topic `flights`, week by week in schedule order, keyed by tail number.

Spark's Kafka sink writes at least once: a job that died between producing a micro-batch and committing it produces that
batch again. Each record therefore has its batch number in a header. The first batch after a start finds the records
that the topic already holds, and produces only the rest. A later batch is no repetition as long as Spark repeats no
task, as on one machine. On a Spark cluster, a task whose executor was lost runs again, and its records may be there
twice: the audit finds that.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline import spark as shared
from pipeline.flights import stage

TOPIC = "flights"


def run(spark: SparkSession, bootstrap: str, work_dir: Path, months: int) -> None:
    """Produce all staged files and return. After a crash, another call continues from the checkpoint."""
    files = stage(work_dir / "input", months)
    sink = _Sink(spark, bootstrap, files)
    query = (
        spark.readStream.schema(shared.FLIGHT)
        .option("header", "true")
        .option("maxFilesPerTrigger", "1")
        .csv(str(work_dir / "input" / "week-*.csv"))
        .writeStream.foreachBatch(sink.write)
        .option("checkpointLocation", str(work_dir / "checkpoints" / "ingest"))
        .trigger(availableNow=True)
        .start()
    )
    shared.await_end(query)


class _Sink:
    """Writes micro-batches; the first one after a start may be a repetition."""

    def __init__(self, spark: SparkSession, bootstrap: str, files: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._files = files
        self._first = True

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Produce one micro-batch, without the records that the topic already holds."""
        records = batch.select(
            f.col("tailnum").cast("binary").alias("key"),
            f.to_json(f.struct("*"), {"timestampFormat": shared.HOUR_FORMAT}).cast("binary").alias("value"),
            shared.batch_header(batch_id).alias("headers"),
        )
        if self._first:
            records = records.join(self._already_there(batch_id), "value", "left_anti").select(
                "key", "value", "headers"
            )
            self._first = False
        shared.write_topic(records, self._bootstrap, TOPIC)
        shared.report(job="ingest", batch=batch_id, done=batch_id + 1, total=self._files)

    def _already_there(self, batch_id: int) -> DataFrame:
        return (
            shared.read_topic(self._spark, self._bootstrap, TOPIC)
            .where(shared.of_batch(batch_id))
            .select("value")
            .distinct()
        )


def main() -> None:
    """Entry point of `python -m pipeline.ingest`."""
    options = shared.arguments("Produce the flights to the topic `flights`").parse_args()
    with shared.session("barnabas-ingest", options.work_dir) as spark:
        run(spark, options.bootstrap, options.work_dir, options.months)


if __name__ == "__main__":
    main()
