"""`python -m benchmarks.validation`: the cost of reading every produced record.

kafka-producer-perf-test (acks=1, 6 partitions) produces to two Barnabas brokers in turn. One has
`barnabas.record.validation=full` (the default), the other `header`. With a codec, `full` also decompresses, as Apache
Kafka's own broker does. CPU time is the broker's; on a busy machine it is more reliable than the throughput.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from statistics import median

import click
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import LocalCluster
from benchmarks.harness import directory
from benchmarks.load.clients import produce
from benchmarks.systems import SETTINGS
from tests.support.kafka.kafka_jars import KafkaRuntime, kafka_runtime
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
    """Compare full record validation with validation of batch headers only."""
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
                samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
                for number in range(-1, rounds):  # the first one warms up
                    for mode in MODES if number % 2 else reversed(MODES):
                        sample = _produce(brokers[mode], runtime, size, codec, f"t{size}-{codec}-{number + 1}")
                        if number >= 0:
                            samples[mode].append(sample)
                _print(f"{size} B, {codec}", samples)


def _produce(cluster: LocalCluster, runtime: KafkaRuntime, size: int, codec: str, topic: str) -> tuple[float, float]:
    """Produce one topic. Returns MB/s and the broker's CPU milliseconds for each MB."""
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


def _print(title: str, samples_by_mode: dict[str, list[tuple[float, float]]]) -> None:
    rates = {mode: median(rate for rate, _ in samples) for mode, samples in samples_by_mode.items()}
    costs = {mode: median(cost for _, cost in samples) for mode, samples in samples_by_mode.items()}
    spread = {mode: f"{min(samples)[0]:.0f}-{max(samples)[0]:.0f}" for mode, samples in samples_by_mode.items()}
    click.echo(
        f"{title}: full {rates['full']:.1f} MB/s ({spread['full']}), header {rates['header']:.1f} MB/s "
        f"({spread['header']}): {rates['full'] / rates['header'] - 1:+.1%}; broker's CPU {costs['full']:.2f} and "
        f"{costs['header']:.2f} ms/MB: {costs['full'] / costs['header'] - 1:+.1%}"
    )


if __name__ == "__main__":
    main()
