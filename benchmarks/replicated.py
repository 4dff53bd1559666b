"""`python -m benchmarks.replicated`: throughput when three replicas are to have every record, side by side.

Both systems are three brokers and a controller of its own, with the same server properties, and a topic of 6 partitions
in three replicas, of which two must be in sync. kafka-producer-perf-test sends 1 KiB records with the defaults of the
Java client (acks=all, idempotent, five requests in flight). Both systems run throughout; one is under load at a time,
and who goes first changes from round to round.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import click
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from barnabas.common.clock import SystemClock
from benchmarks.clusters import Cluster, choose
from benchmarks.measurements import CLIENT_JVM, PARTITIONS, TOPIC_TIMEOUT_S
from benchmarks.report import publish, rows
from tests.support.kafka_jars import KafkaRuntime, KafkaRuntimeError, kafka_runtime
from tests.support.kafka_tools import MAIN_CLASSES
from tests.support.processes import cpu_seconds
from tests.support.waiting import eventually

WARM_UP_ROUNDS = 6  # four JVMs compile as they go
RECORD_BYTES = 1024
SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2", "log.segment.bytes": str(1 << 30)}


def produce(cluster: Cluster, runtime: KafkaRuntime, topic: str, records: int) -> dict[str, float]:
    """Throughput of one run, and the CPU time that the three brokers used for it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(TOPIC_TIMEOUT_S)
    eventually("the topic is there", lambda: topic in admin.list_topics(timeout=TOPIC_TIMEOUT_S).topics)
    size = ("--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
    command = [*runtime.command(MAIN_CLASSES["kafka-producer-perf-test"], *CLIENT_JVM), "--topic", topic, *size]
    command += ["--command-property", f"bootstrap.servers={cluster.bootstrap}"]
    before = _brokers_cpu_seconds(cluster)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    cpu = _brokers_cpu_seconds(cluster) - before
    match = re.search(r"\(([\d.]+) MB/sec\)", result.stdout.splitlines()[-1] if result.stdout else "")
    assert match, result.stdout + result.stderr
    admin.delete_topics([topic])[topic].result(TOPIC_TIMEOUT_S)
    gigabytes = records * RECORD_BYTES / 1e9
    return {"produce acks=all, RF 3": float(match[1]), "produce acks=all, RF 3, brokers' CPU": cpu / gigabytes}


def _brokers_cpu_seconds(cluster: Cluster) -> float:
    return sum(cpu_seconds(node.child.pid) for node in cluster.brokers if node.child is not None)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Counted rounds.")
@click.option("--records", default=200_000, show_default=True, help="Records a round.")
@click.option("--systems", type=click.Choice(["both", "barnabas", "apache"]), default="both", show_default=True)
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
def main(rounds: int, records: int, systems: str, check: bool) -> None:
    """Compare the throughput of replicated records."""
    try:
        runtime = kafka_runtime()
    except KafkaRuntimeError as error:
        sys.exit(str(error))
    console = Console(stderr=True)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-replicated-"))
    chosen = choose(systems, runtime, directory, SETTINGS)
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        for name, cluster in chosen.items():
            console.print(f"starting {name}")
            cluster.start()
            stack.callback(cluster.stop)
        for number in range(1 - WARM_UP_ROUNDS, rounds + 1):
            in_turn = list(chosen.items()) if number % 2 else list(chosen.items())[::-1]
            for name, cluster in in_turn:
                told = produce(cluster, runtime, f"replicated-{number + WARM_UP_ROUNDS}", records)
                label = "warm-up" if number <= 0 else f"{number}/{rounds}"
                figures = ", ".join(f"{figure} {value:,.4g}" for figure, value in told.items())
                console.print(f"{label} [bold]{name}[/bold]: {figures}", highlight=False)
                if number > 0:
                    for figure, value in told.items():
                        samples[figure][name].append(value)
    path = publish(samples, {"rounds": rounds, "records": records, "settings": SETTINGS}, SystemClock())
    console.print(f"samples in {os.path.relpath(path)}")
    if check and any(row.is_met is False for row in rows(samples)):
        sys.exit("a target was missed")


if __name__ == "__main__":
    main()
