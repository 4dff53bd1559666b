"""`python -m benchmarks.validation`: what it costs to look at every record that is produced.

Two brokers of ours, `barnabas.record.validation` being `full` (the default) and `header`, are produced to in turn by
kafka-producer-perf-test (acks=1, 6 partitions). A codec costs `full` the decompression, which Apache Kafka's own broker
does as well. CPU time is the broker's: on a machine that does other things too it tells more than the throughput.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from statistics import median

import click
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import LocalCluster
from benchmarks.clients import produce
from benchmarks.harness import directory
from benchmarks.systems import SETTINGS
from tests.support.kafka_jars import KafkaRuntime, kafka_runtime
from tests.support.processes import cpu_seconds

MODES = ("full", "header")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BYTES_PER_RUN = 200_000_000
PARTITIONS = 6


@click.command()
@click.option("--rounds", default=4, show_default=True)
@click.option("--codec", "codecs", type=click.Choice(CODECS), multiple=True, default=("none",), show_default=True)
@click.option("--record-bytes", "sizes", type=int, multiple=True, default=(100, 1024), show_default=True)
def main(rounds: int, codecs: tuple[str, ...], sizes: tuple[int, ...]) -> None:
    """Compare full validation with that of batch headers alone."""
    with directory("validation") as where, ExitStack() as stack:
        runtime = kafka_runtime()
        brokers = {
            mode: stack.enter_context(
                LocalCluster(where / mode, 1, 0, {**SETTINGS, "barnabas.record.validation": mode})
            )
            for mode in MODES
        }
        for size in sizes:
            for codec in codecs:
                told: dict[str, list[tuple[float, float]]] = defaultdict(list)
                for number in range(-1, rounds):  # the first one warms up
                    for mode in MODES if number % 2 else reversed(MODES):
                        sample = _produce(brokers[mode], runtime, size, codec, f"t{size}-{codec}-{number + 1}")
                        if number >= 0:
                            told[mode].append(sample)
                _print(f"{size} B, {codec}", told)


def _produce(cluster: LocalCluster, runtime: KafkaRuntime, size: int, codec: str, topic: str) -> tuple[float, float]:
    """MB/s, and CPU ms a MB."""
    child = cluster.brokers[0].child
    assert child is not None
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    used = cpu_seconds(child.pid)
    count = BYTES_PER_RUN // size
    settings = ("acks=1", f"compression.type={codec}")
    rate = produce(runtime, cluster.bootstrap, topic, count, size, *settings).mb_per_s
    used = cpu_seconds(child.pid) - used
    admin.delete_topics([topic])[topic].result(30)
    return rate, used * 1000 / (count * size / 1e6)


def _print(what: str, told: dict[str, list[tuple[float, float]]]) -> None:
    rates = {mode: median(rate for rate, _ in samples) for mode, samples in told.items()}
    costs = {mode: median(cost for _, cost in samples) for mode, samples in told.items()}
    spread = {mode: f"{min(samples)[0]:.0f}-{max(samples)[0]:.0f}" for mode, samples in told.items()}
    click.echo(
        f"{what}: full {rates['full']:.1f} MB/s ({spread['full']}), header {rates['header']:.1f} MB/s "
        f"({spread['header']}): {rates['full'] / rates['header'] - 1:+.1%}; broker's CPU {costs['full']:.2f} and "
        f"{costs['header']:.2f} ms/MB: {costs['full'] / costs['header'] - 1:+.1%}"
    )


if __name__ == "__main__":
    main()
