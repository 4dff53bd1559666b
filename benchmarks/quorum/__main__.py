"""`python -m benchmarks.quorum`: how fast three controllers elect another one, and how fast they decide.

Either system has three controllers, three brokers, and the same timeouts. One system runs at a time.

*Elections.* The active controller is killed (SIGKILL), and a client at once asks a broker for a new topic. The figure
is the time until it is answered. Meanwhile a Java producer (acks=all) sends a record to each of six partitions every
25 ms, and a consumer reads them. Their longest gaps are figures, beside those of three seconds without a fault. Then
the killed controller is started again, and catches up.

*Decisions.* Topics of six partitions in three replicas, created one by one and in one request: until the answer, and
until each broker lists all of them with their leaders.
"""

from __future__ import annotations

import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import click

from barnabas.common.clock import Clock, SystemClock
from benchmarks.harness import directory, systems_option
from benchmarks.quorum import topics
from benchmarks.quorum.clusters import Cluster, active_controller, choose, connection, have_caught_up, memory_mb
from benchmarks.quorum.load import PARTITIONS, TOPIC, Clients
from benchmarks.report.figures import OURS
from benchmarks.report.runs import HISTORY, Run, append, versions
from benchmarks.report.table import console, missed, table
from benchmarks.systems import own_executable
from tests.support.kafka.kafka_jars import KafkaRuntime, kafka_runtime
from tests.support.waiting import eventually

NS_PER_S: Final = 1e9
NS_PER_MS: Final = 1e6
SETTLE_MS: Final = 1_500
UNDISTURBED_MS: Final = 3_000
CATCH_UP_TIMEOUT_MS: Final = 120_000
WARM_UP_KILLS: Final = 1
ELECTIONS: Final = "elections"
DECISIONS: Final = "decisions"
Sample = tuple[str, float]


@click.command()
@click.option("--kills", default=10, show_default=True, help="Counted kills of the active controller.")
@click.option("--topics", "count", default=1_000, show_default=True, help="Number of topics.")
@click.option("--rounds", default=1, show_default=True, help="Rounds of creating them.")
@systems_option
@click.option("--only", type=click.Choice([ELECTIONS, DECISIONS]), multiple=True, help="Run only this part.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--keep/--no-keep", default=True, help="Append the run to the history.")
def main(kills: int, count: int, rounds: int, systems: str, only: tuple[str, ...], check: bool, keep: bool) -> None:
    """Compare the controllers of Barnabas and Apache Kafka."""
    progress = console(stderr=True)
    clock = SystemClock()
    samples: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with directory("quorum") as where:
        runtime = kafka_runtime()
        for name, cluster in choose(systems, runtime, where):
            progress.print(f"starting {name}")
            with ExitStack() as stack:
                stack.callback(cluster.stop)
                cluster.start()
                for figure, value in measure(cluster, runtime, clock, kills, count, rounds, only):
                    progress.print(f"[bold]{name}[/bold] {figure}: {value:,.4g}")
                    samples[figure][name].append(value)
    console().print(table(samples))
    if keep:
        append(Run.now(clock, kills, versions({OURS: own_executable()}), {}, samples), HISTORY)
    if check and missed(samples):
        sys.exit("a target was missed")


def measure(
    cluster: Cluster,
    runtime: KafkaRuntime,
    clock: Clock,
    kills: int,
    count: int,
    rounds: int,
    only: Sequence[str],
) -> Iterator[Sample]:
    """Yield the figures of a running cluster with their samples, as they are measured."""
    eventually("the controllers have caught up", lambda: have_caught_up(cluster), CATCH_UP_TIMEOUT_MS)
    if not only or ELECTIONS in only:
        yield from elections(cluster, runtime, clock, kills)
    if not only or DECISIONS in only:
        for number in range(rounds):
            yield from decisions(cluster, clock, count, f"topic-{number}")


def elections(cluster: Cluster, runtime: KafkaRuntime, clock: Clock, kills: int) -> Iterator[Sample]:
    """Kill the active controller again and again, with clients."""
    with connection(cluster.brokers[0], topics.TIMEOUT_MS) as to:
        topics.must_create(to, [TOPIC], PARTITIONS)
    clients = Clients(clock)
    with clients.running(runtime, cluster.bootstrap):
        for number in range(-WARM_UP_KILLS, kills):
            found = list(_one_election(cluster, clients, clock, f"after-{number + WARM_UP_KILLS}"))
            if number >= 0:
                yield from found


def _one_election(cluster: Cluster, clients: Clients, clock: Clock, name: str) -> Iterator[Sample]:
    pause(clock, SETTLE_MS)
    start_ns = clock.monotonic_ns()
    pause(clock, UNDISTURBED_MS)
    produced, consumed = clients.gaps_ms(start_ns, clock.monotonic_ns())
    yield "active controller alive, producer's gap", produced
    yield "active controller alive, consumer's gap", consumed
    active = eventually("a controller is active", lambda: active_controller(cluster), CATCH_UP_TIMEOUT_MS)
    assert active is not None
    start_ns = clock.monotonic_ns()
    cluster.stop_node(active, signal.SIGKILL)
    topics.create_anyway(cluster.brokers[0], name, clock)
    yield "active controller killed, next decision", (clock.monotonic_ns() - start_ns) / NS_PER_MS
    pause(clock, SETTLE_MS)
    produced, consumed = clients.gaps_ms(start_ns, clock.monotonic_ns())
    yield "active controller killed, producer's gap", produced
    yield "active controller killed, consumer's gap", consumed
    cluster.start_node(active)
    eventually("the controllers have caught up", lambda: have_caught_up(cluster), CATCH_UP_TIMEOUT_MS)


def decisions(cluster: Cluster, clock: Clock, count: int, prefix: str) -> Iterator[Sample]:
    """Create topics one by one, delete them, and create others in one request."""
    broker, *_ = cluster.brokers
    singles = [f"{prefix}-single-{number}" for number in range(count)]
    together = [f"{prefix}-together-{number}" for number in range(count)]
    with connection(broker, topics.TIMEOUT_MS) as to:
        topics.await_unknown(cluster.brokers, singles)  # connects, and warms nothing else
        start_ns = clock.monotonic_ns()
        for name in singles:
            topics.must_create(to, [name])
        yield "1,000 topics one by one", (clock.monotonic_ns() - start_ns) / NS_PER_S
        topics.await_known(cluster.brokers, singles)
        yield "1,000 topics one by one, known to all", (clock.monotonic_ns() - start_ns) / NS_PER_S
        yield "1,000 topics, memory of brokers", memory_mb(cluster.brokers)
        yield "1,000 topics, memory of controllers", memory_mb(cluster.controllers)
        topics.delete(to, singles)
        topics.await_unknown(cluster.brokers, singles)
        pause(clock, SETTLE_MS)  # for the logs to be deleted
        start_ns = clock.monotonic_ns()
        topics.must_create(to, together)
        yield "1,000 topics in one request", (clock.monotonic_ns() - start_ns) / NS_PER_S
        topics.await_known(cluster.brokers, together)
        yield "1,000 topics in one request, known to all", (clock.monotonic_ns() - start_ns) / NS_PER_S
        topics.delete(to, together)
        topics.await_unknown(cluster.brokers, together)


def pause(clock: Clock, milliseconds: int) -> None:
    """Wait for the real clock."""
    end_ms = clock.monotonic_ms() + milliseconds
    eventually("the pause ends", lambda: clock.monotonic_ms() >= end_ms, milliseconds + 1000)


if __name__ == "__main__":
    main()
