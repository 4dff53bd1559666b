"""`python -m benchmarks.partitions`: many partitions on one broker of either system, side by side.

How long it takes to create them, to take one record in each, to stop, to start on them until each is led again, and to
delete them; what memory and descriptors the broker then has. A stop and a start count the whole node, its controller
included. One system runs at a time.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.clock import SystemClock
from benchmarks.nodes import Apache, Barnabas, Node
from tests.support.kafka_jars import KafkaRuntimeError, kafka_runtime
from tests.support.processes import resident_bytes
from tests.support.waiting import eventually

TOPIC = "many"
MIB = 1 << 20
LIMIT_MS = 300_000
SETTINGS = {"offsets.topic.num.partitions": "1", "log.segment.delete.delay.ms": "1000"}


class Watch:
    """Times one thing after another."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._last_ns = self._clock.monotonic_ns()

    def lap(self) -> float:
        """Seconds since the last one."""
        now_ns = self._clock.monotonic_ns()
        seconds, self._last_ns = (now_ns - self._last_ns) / 1e9, now_ns
        return seconds


def measure(node: Node, count: int) -> Iterator[tuple[str, str]]:
    """Figures and what they were."""
    watch = Watch()
    with ExitStack() as stack:
        bootstrap, _, _ = stack.enter_context(node.running())
        admin = AdminClient({"bootstrap.servers": bootstrap})
        watch.lap()
        admin.create_topics([NewTopic(TOPIC, count, 1)], operation_timeout=LIMIT_MS / 1000)[TOPIC].result(LIMIT_MS)
        eventually("all are led", lambda: _led(admin) == count, LIMIT_MS)
        yield "create", f"{watch.lap():.2f} s"
        _write_to_each(bootstrap, count)
        yield "a record in each", f"{watch.lap():.2f} s"
        del admin
        watch.lap()
    yield "stop", f"{watch.lap():.2f} s"
    with node.running() as (bootstrap, pid, _):
        admin = AdminClient({"bootstrap.servers": bootstrap})
        eventually("all are led", lambda: _led(admin) == count, LIMIT_MS)
        yield "start", f"{watch.lap():.2f} s"
        yield (
            "memory, descriptors",
            f"{resident_bytes(pid) / MIB:.0f} MiB, {len(list(Path(f'/proc/{pid}/fd').iterdir()))}",
        )
        watch.lap()
        admin.delete_topics([TOPIC], operation_timeout=LIMIT_MS / 1000)[TOPIC].result(LIMIT_MS)
        eventually("it is gone", lambda: TOPIC not in admin.list_topics(timeout=60).topics, LIMIT_MS)
        yield "delete", f"{watch.lap():.2f} s"


def _led(admin: AdminClient) -> int:
    """How many partitions have a leader."""
    topic = admin.list_topics(timeout=60).topics.get(TOPIC)
    return 0 if topic is None else sum(1 for found in topic.partitions.values() if found.leader >= 0)


def _write_to_each(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    failed: list[object] = []
    for number in range(count):
        producer.produce(
            TOPIC, b"v", partition=number, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(LIMIT_MS / 1000) == 0
    assert not failed, failed[0]


@click.command()
@click.option("--partitions", "count", default=2000, show_default=True)
@click.option("--systems", type=click.Choice(["both", "barnabas", "apache"]), default="both", show_default=True)
def main(count: int, systems: str) -> None:
    """Compare a broker of many partitions."""
    directory = Path(tempfile.mkdtemp(prefix="barnabas-partitions-"))
    chosen: dict[str, Callable[[], Node]] = {
        "apache": lambda: Apache(directory, kafka_runtime(), SETTINGS),
        "barnabas": lambda: Barnabas(directory, SETTINGS),
    }
    try:
        for name, make in chosen.items():
            if systems in ("both", name):
                node = make()
                for figure, value in measure(node, count):
                    click.echo(f"{node.name}: {figure}: {value}")
    except KafkaRuntimeError as error:
        sys.exit(str(error))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
