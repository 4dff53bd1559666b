"""`python -m tests.pipeline.two_queries BOOTSTRAP TOPIC DIR`: two streaming queries with checkpoints read one topic.

Each writes the values of its records as lines of text to DIR/<name>/output, and prints one line of JSON for each batch:
{"query": "first", "batch": 3, "rows": 120}. When DIR/stop exists, the program reads the topic to its end and exits with
0. A batch that fails ends its query, and the program exits with 1.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipeline.spark import report, session

NAMES = ("first", "second")
TURN_S = 0.2


def start(spark: SparkSession, name: str, bootstrap: str, topic: str, directory: Path) -> StreamingQuery:
    """One query, from the topic's start or where its checkpoint ends."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .load()
        .selectExpr("CAST(value AS STRING)")
        .writeStream.format("text")
        .queryName(name)
        .option("path", str(directory / name / "output"))
        .option("checkpointLocation", str(directory / name / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )


def main(bootstrap: str, topic: str, directory: Path) -> None:
    """Run until the file `stop` exists."""
    pause = threading.Event()  # never set: waits by the real clock
    reported = dict.fromkeys(NAMES, -1)
    with session("two-queries") as spark:
        queries = {name: start(spark, name, bootstrap, topic, directory) for name in NAMES}
        while not (directory / "stop").exists():
            for name, query in queries.items():
                if not query.isActive:
                    sys.exit(f"{name}: {query.exception()}")
                progress = query.lastProgress
                if progress is not None and progress["batchId"] > reported[name]:
                    reported[name] = progress["batchId"]
                    report(query=name, batch=reported[name], rows=progress["numInputRows"])
            pause.wait(TURN_S)
        for query in queries.values():
            query.processAllAvailable()
            query.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
