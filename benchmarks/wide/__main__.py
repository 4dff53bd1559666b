"""`python -m benchmarks.wide`: what many partitions, connections and groups cost, in both systems.

*three*: three brokers, each partition in three replicas, and a separate controller: how long creating the partitions
takes, what they cost while nothing happens, and how long it takes until they have other leaders after SIGKILL for a
broker. *one*: one broker, how long a restart takes, and what is left of the rate of a load on ten of the partitions.
*connections*: one broker, what connections cost that do nothing, and what is left of the rate of a load beside them.
*groups*: one broker, how long it takes until all groups have their assignment, and what their heartbeats cost.

Each measurement starts a system on empty storage, one at a time. The systems take turns; the first one changes from
round to round, and a round goes through all numbers. So every JVM is as cold as the other ones are.
"""

from __future__ import annotations

import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import KafkaException

from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import SystemClock
from benchmarks.harness import chosen, directory, systems_option
from benchmarks.load.load_generator import LoadGenerator, LoadGeneratorError
from benchmarks.report.figures import OURS
from benchmarks.report.runs import HISTORY, Run, append, versions
from benchmarks.report.table import console, table
from benchmarks.rounds import Progress, Results
from benchmarks.systems import REPLICATED, SETTINGS, Kind, Make, own_executable
from benchmarks.wide.crowds import consumer_groups, idle_connections
from benchmarks.wide.figures import CONNECTIONS, GROUPS, PARTITIONS, Curve, figures
from benchmarks.wide.measures import Measure, Times, Tools, one_broker, three_brokers
from benchmarks.workloads.requests import possible

#: Kafka's defaults, written out: both have the same.
TIMEOUTS: Final = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "auto.leader.rebalance.enable": "false",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the measurements, which `--only` names."""

    curve: Curve
    brokers: int
    measure: Measure


PARTS: Final = {
    "three": Part(PARTITIONS, 3, three_brokers),
    "one": Part(PARTITIONS, 1, one_broker),
    "connections": Part(CONNECTIONS, 1, idle_connections),
    "groups": Part(GROUPS, 1, consumer_groups),
}
FAILURES = (AssertionError, LoadGeneratorError, KafkaException, NodeConnectionError, OSError)


def numbers(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    """Return the numbers of `10,100,1000`, the fewest first, each once; raises BadParameter."""
    words = text.replace("_", "").split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 10,100,1000")
    return sorted({int(word) for word in words})


def numbers_option(curve: Curve, default: str) -> Callable[[Any], Any]:
    """Return the option with the numbers of a curve."""
    return click.option(
        f"--{curve.noun}", callback=numbers, default=default, show_default=True, help=f"Numbers of {curve.noun}."
    )


@click.command()
@numbers_option(PARTITIONS, "10,100,1000,10000")
@numbers_option(CONNECTIONS, "10,100,1000,5000,19000")
@numbers_option(GROUPS, "1,10,100,1000")
@click.option("--rounds", default=1, show_default=True, help="Rounds through all numbers.")
@systems_option
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="Run only this part.")
@click.option("--settle-s", default=30, show_default=True, help="Seconds until a system counts as idle.")
@click.option("--window-s", default=30, show_default=True, help="Seconds in which idle CPU time is counted.")
@click.option("--load-s", default=5, show_default=True, help="Seconds of a run of the load; the last one counts.")
@click.option("--keep/--no-keep", default=True, help="Append the run to the history.")
def main(
    partitions: list[int],
    connections: list[int],
    groups: list[int],
    rounds: int,
    systems: str,
    only: tuple[str, ...],
    settle_s: int,
    window_s: int,
    load_s: int,
    keep: bool,
) -> None:
    """Compare what many partitions, connections and groups cost Barnabas and Apache Kafka."""
    clock = SystemClock()
    progress: Progress = console(stderr=True).print
    times = Times(settle_s * 1000, window_s * 1000, load_s * 1000)
    results: Results = defaultdict(lambda: defaultdict(list))
    parts = {name: PARTS[name] for name in only or PARTS}
    given = {PARTITIONS: partitions, CONNECTIONS: held(connections), GROUPS: groups}
    counts = {curve: given[curve] for curve in (part.curve for part in parts.values())}
    if CONNECTIONS in counts and given[CONNECTIONS] != connections:
        progress(f"connections: {max(given[CONNECTIONS]):,} at most, by the limit of open files")
    with ended_by_sigterm(), directory("wide") as where:
        makes = chosen(systems)
        tools = Tools(LoadGenerator(where, clock), clock, times)
        failed = measure_all(tools, makes, parts, counts, rounds, where, progress, results)
    for curve, some in counts.items():
        results |= curve.derived(results, some)
    shown = figures(counts)
    console().print(table(results, shown))
    if keep:
        ours = {OURS: own_executable()} if OURS in makes else {}
        limits = {"connections": float(max(counts[CONNECTIONS]))} if CONNECTIONS in counts else {}
        append(Run.now(clock, rounds, versions(ours), limits, results, shown), HISTORY)
        progress(f"appended to {HISTORY.name}")
    if failed:
        sys.exit(f"not measured: {'; '.join(failed)}")


def held(connections: Sequence[int]) -> list[int]:
    """Return the numbers of connections that a process may have, so that each row names what there was."""
    return sorted({possible(count) for count in connections})


def measure_all(
    tools: Tools,
    makes: Mapping[str, Make],
    parts: Mapping[str, Part],
    counts: Mapping[Curve, Sequence[int]],
    rounds: int,
    where: Path,
    progress: Progress,
    results: Results,
) -> list[str]:
    """Measure in turns and add the samples to `results`. Returns what failed.

    What failed is not tried again, so that samples with the same index are of the same round. Ctrl-C ends the rounds,
    and what has been measured is shown.
    """
    failed: list[str] = []
    try:
        for number in range(rounds):
            for name, count, system in turns(parts, counts, list(makes), number):
                part = parts[name]
                label = part.curve.named(name, count) + f", {system}"
                if label in failed:
                    continue
                settings = {**SETTINGS, **TIMEOUTS, **(REPLICATED if part.brokers > 1 else {})}
                made = makes[system](where / "system", Kind(part.brokers), settings)
                try:
                    with closing(part.measure(tools, made, count)) as samples:
                        for what, value in samples:
                            figure = part.curve.named(what, count)
                            results[figure][system].append(value)
                            progress(f"{number + 1}/{rounds} [bold]{system}[/bold] {figure}: {value:,.4g}")
                except FAILURES as error:
                    failed.append(label)
                    progress(f"[red]{label} failed[/red]: {error}")
    except KeyboardInterrupt:
        progress("stopped")
        failed.append("what was left when it was stopped")
    return failed


def turns(
    parts: Mapping[str, Part], counts: Mapping[Curve, Sequence[int]], systems: Sequence[str], number: int
) -> Iterator[tuple[str, int, str]]:
    """Yield what a round measures, in which order: which part, with which number, and which system."""
    first = number % len(systems)
    for name, part in parts.items():
        for count in counts[part.curve]:
            for system in [*systems[first:], *systems[:first]]:
                yield name, count, system


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: the systems are stopped, and their directories are removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
