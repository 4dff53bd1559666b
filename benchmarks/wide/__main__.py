"""`python -m benchmarks.wide`: what many partitions cost, in both systems.

*Three brokers*, each partition in three replicas, and a separate controller: how long creating the partitions takes,
what they cost while nothing happens, and how long it takes until they have other leaders after SIGKILL for a broker.
*One broker*: how long a restart takes, and what is left of the rate of a load on ten of the partitions.

Each measurement starts a system on empty storage, one at a time. The systems take turns; the first one changes from
round to round, and a round goes through all numbers of partitions. So every JVM is as cold as the other ones are.
"""

from __future__ import annotations

import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

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
from benchmarks.wide import figures
from benchmarks.wide.measures import MEASURES, Times, Tools

#: Kafka's defaults, written out: both have the same.
TIMEOUTS: Final = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "auto.leader.rebalance.enable": "false",
}
FAILURES = (AssertionError, LoadGeneratorError, KafkaException, NodeConnectionError, OSError)


def numbers(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    """Return the numbers of `10,100,1000`, the fewest first, each once; raises BadParameter."""
    words = text.replace("_", "").split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 10,100,1000")
    return sorted({int(word) for word in words})


@click.command()
@click.option(
    "--partitions", "counts", callback=numbers, default="10,100,1000,10000", show_default=True, help="Their numbers."
)
@click.option("--rounds", default=1, show_default=True, help="Rounds through all numbers of partitions.")
@systems_option
@click.option("--only", type=click.Choice(list(MEASURES)), multiple=True, help="With this number of brokers only.")
@click.option("--settle-s", default=30, show_default=True, help="Seconds until a system counts as idle.")
@click.option("--window-s", default=30, show_default=True, help="Seconds in which idle CPU time is counted.")
@click.option("--load-s", default=5, show_default=True, help="Seconds of a run of the load; the last one counts.")
@click.option("--keep/--no-keep", default=True, help="Append the run to the history.")
def main(
    counts: list[int],
    rounds: int,
    systems: str,
    only: tuple[str, ...],
    settle_s: int,
    window_s: int,
    load_s: int,
    keep: bool,
) -> None:
    """Compare what many partitions cost Barnabas and Apache Kafka."""
    clock = SystemClock()
    progress: Progress = console(stderr=True).print
    times = Times(settle_s * 1000, window_s * 1000, load_s * 1000)
    results: Results = defaultdict(lambda: defaultdict(list))
    with ended_by_sigterm(), directory("wide") as where:
        makes = chosen(systems)
        tools = Tools(LoadGenerator(where, clock), clock, times)
        failed = measure_all(tools, makes, counts, rounds, only or tuple(MEASURES), where, progress, results)
    results |= figures.derived(results, counts)
    shown = figures.figures(counts)
    console().print(table(results, shown))
    if keep:
        ours = {OURS: own_executable()} if OURS in makes else {}
        append(Run.now(clock, rounds, versions(ours), {}, results, shown), HISTORY)
        progress(f"appended to {HISTORY.name}")
    if failed:
        sys.exit(f"not measured: {'; '.join(failed)}")


def measure_all(
    tools: Tools,
    makes: Mapping[str, Make],
    counts: Sequence[int],
    rounds: int,
    only: Sequence[str],
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
            for name, count, system in turns(only, counts, list(makes), number):
                label = f"{name}, {count:,} partitions, {system}"
                if label in failed:
                    continue
                brokers, measure = MEASURES[name]
                settings = {**SETTINGS, **TIMEOUTS, **(REPLICATED if brokers > 1 else {})}
                made = makes[system](where / "system", Kind(brokers), settings)
                try:
                    with closing(measure(tools, made, count)) as samples:
                        for what, value in samples:
                            figure = figures.named(what, count)
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
    only: Sequence[str], counts: Sequence[int], systems: Sequence[str], number: int
) -> Iterator[tuple[str, int, str]]:
    """Yield what a round measures, in which order: with how many brokers, partitions, and which system."""
    first = number % len(systems)
    for count in counts:
        for name in only:
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
