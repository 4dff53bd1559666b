"""Shared by the Spark jobs: the session, the Kafka options and the schema of the records.

SPARK_MASTER selects where they run: `local[2]` (the default) or `spark://HOST:PORT`, a standalone cluster. On a cluster
- this program is the driver; it ships the connector and this package to the executors;
- driver and executors must share the work directory under one path (a network file system, a volume), since it holds
  the staged flights, the streaming state and the Parquet files. This is checked before a job starts;
- SPARK_CORES_MAX limits the cores of each job (default 2), so that both can run at once; Spark itself reads
  SPARK_EXECUTOR_MEMORY.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from barnabas.config.properties import parse_properties
from pipeline import shipping

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"

FLIGHT = StructType(
    [
        StructField("flight_id", StringType()),
        StructField("event_time", TimestampType()),
        StructField("carrier", StringType()),
        StructField("flight", IntegerType()),
        StructField("tailnum", StringType()),
        StructField("origin", StringType()),
        StructField("dest", StringType()),
        StructField("dep_delay", IntegerType()),
        StructField("arr_delay", IntegerType()),
        StructField("air_time", IntegerType()),
        StructField("distance", IntegerType()),
    ]
)
COMMAND_CONFIG = "BARNABAS_COMMAND_CONFIG"
SECURITY_PREFIXES = ("security.", "ssl.", "sasl.")
HOUR_FORMAT = "yyyy-MM-dd'T'HH:mm:ss'Z'"


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with the options of every job."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap", required=True, help="host:port of a broker")
    parser.add_argument("--work-dir", type=Path, required=True, help="where input files, checkpoints and Parquet live")
    parser.add_argument("--months", type=int, default=12, help="number of months of 2013 to use (1-12)")
    return parser


def session(name: str, work_dir: Path | None = None) -> SparkSession:
    """A Spark session with the Kafka connector, in UTC; SIGTERM to this process ends it.

    On a cluster, exits with one line if executors do not share `work_dir`.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    master = os.environ.get("SPARK_MASTER", "local[2]")
    spark = (
        SparkSession.builder.appName(name)
        .master(master)
        .config("spark.cores.max", os.environ.get("SPARK_CORES_MAX", "2"))
        .config("spark.jars.packages", CONNECTOR)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    if not master.startswith("local"):
        shipping.ship(spark.sparkContext)
        if work_dir is not None:
            check_shared(spark, work_dir)
    return spark


def check_shared(spark: SparkSession, work_dir: Path) -> None:
    """Exit unless all executors see a file that the driver writes into the work directory."""
    blind = shipping.blind_hosts(spark.sparkContext, work_dir)
    if blind:
        spark.stop()
        raise SystemExit(
            f"the executors on {', '.join(blind)} do not see {work_dir}: choose a shared directory with --work-dir"
        )


def connection(bootstrap: str) -> dict[str, str]:
    """The options that say where the cluster is and how to connect to it.

    $BARNABAS_COMMAND_CONFIG names a file of properties for Kafka's Java client, as for the commands of Barnabas.
    """
    file = os.environ.get(COMMAND_CONFIG)
    properties = parse_properties(Path(file).read_text()) if file else {}
    security = {f"kafka.{key}": text for key, text in properties.items() if key.startswith(SECURITY_PREFIXES)}
    return {"kafka.bootstrap.servers": bootstrap, **security}


def read_topic(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """All present records of a topic, as a batch."""
    return (
        spark.read.format("kafka")
        .options(**connection(bootstrap))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("includeHeaders", "true")
        .load()
    )


def write_topic(frame: DataFrame, bootstrap: str, topic: str) -> None:
    """Produce the rows (key, value, optional headers) with acks=all; return when all are acknowledged."""
    (
        frame.write.format("kafka")
        .options(**connection(bootstrap))
        .option("kafka.acks", "all")
        .option("kafka.enable.idempotence", "true")
        .option("kafka.compression.type", "lz4")
        .option("includeHeaders", "true")
        .option("topic", topic)
        .save()
    )


def flights_of(records: DataFrame) -> DataFrame:
    """The flights in the values of Kafka records."""
    return records.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")


def batch_header(batch_id: int) -> f.Column:
    """The header that names the micro-batch of a record, by which a repeated batch finds its own records."""
    return f.array(f.struct(f.lit("batch").alias("key"), f.lit(str(batch_id)).cast("binary").alias("value")))


def of_batch(batch_id: int) -> f.Column:
    """The condition that a record has the header of a micro-batch."""
    return f.exists("headers", lambda h: (h["key"] == "batch") & (h["value"].cast("string") == str(batch_id)))


def report(**progress: object) -> None:
    """Print one line of JSON, from which `pipeline.run` draws the progress bar."""
    print(json.dumps(progress), flush=True)


def await_end(query: StreamingQuery) -> None:
    """Wait for a bounded query to end; raises its StreamingQueryException if it failed."""
    query.awaitTermination()


def main() -> None:
    """`python -m pipeline.spark`: download the connector into the local cache, so that later starts are fast."""
    with session("barnabas-setup") as spark:
        spark.range(1).count()


if __name__ == "__main__":
    main()
