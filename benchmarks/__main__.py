"""`python -m benchmarks`: measures both systems in alternating rounds; prints the table, draws the picture, adds a line
to the history.

Both run throughout, with the same settings and on the same disk; only one is under load at a time, and who goes first
changes from round to round. Rounds count when both are warm (`rounds.py`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path

import click
from confluent_kafka import KafkaException

from barnabas.common.clock import SystemClock
from benchmarks.bench import FULL, QUICK, Bench, Measurement
from benchmarks.clients import ClientError
from benchmarks.figures import OURS, THEIRS
from benchmarks.harness import chosen, directory, systems_option
from benchmarks.history import HISTORY, PICTURE, Run, append, console, versions
from benchmarks.load_generator import LoadGenerator, LoadGeneratorError
from benchmarks.plot import draw
from benchmarks.report import missed, table
from benchmarks.rounds import Results, Tell, measure
from benchmarks.systems import REPLICATED, SETTINGS, Make, System, barnabas, own_executable, remove, running
from benchmarks.workloads import MEASUREMENTS
from tests.support.kafka_jars import kafka_runtime

FAILURES = (AssertionError, ClientError, LoadGeneratorError, KafkaException, OSError)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Counted rounds a measurement.")
@click.option("--only", multiple=True, type=click.Choice(list(MEASUREMENTS)), help="Leave out the others.")
@systems_option
@click.option("--also", multiple=True, metavar="NAME=BARNABAS", help="Another barnabas executable, as a column.")
@click.option("--quick", is_flag=True, help="Short runs: to try it out, not to judge by; not kept in the history.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--history", type=click.Path(path_type=Path), default=HISTORY, help="The file that gets a line.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw here (default: in results/, if all is measured).")
def main(
    rounds: int,
    only: tuple[str, ...],
    systems: str,
    also: tuple[str, ...],
    quick: bool,
    check: bool,
    history: Path,
    plot: Path | None,
) -> None:
    """Compare Barnabas with Apache Kafka on this machine."""
    clock = SystemClock()
    told = console(stderr=True)
    tell: Tell = told.print
    others = dict(map(_named_executable, also))
    results: Results = {}
    with directory("bench") as where:
        makes = chosen(systems) | {name: barnabas(name, path) for name, path in others.items()}
        bench = Bench(kafka_runtime(), LoadGenerator(where, clock), clock, QUICK if quick else FULL)
        measurements = {name: row for name, row in MEASUREMENTS.items() if not only or name in only}
        limits = own_limits(bench, measurements, tell)
        broken = measure_all(bench, makes, measurements, rounds, where, tell, results)
    console().print(table(results))
    if not quick:
        ours = {OURS: own_executable()} if OURS in makes else {}
        append(Run.now(clock, rounds, versions({**ours, **others}), limits, results), history)
        tell(f"a line more in {os.path.relpath(history)}")
    picture = plot or (PICTURE if not quick and not only and OURS in makes else None)
    if picture is not None and THEIRS in makes:
        draw(results, picture)
        tell(f"drawn: {os.path.relpath(picture)}")
    if short_of := missed(results):
        tell(f"missed: {'; '.join(short_of)}")
    if broken:
        sys.exit(f"not measured: {', '.join(broken)}")
    if check and short_of:
        sys.exit("a target was missed")


def measure_all(
    bench: Bench,
    makes: Mapping[str, Make],
    measurements: Mapping[str, Measurement],
    rounds: int,
    where: Path,
    tell: Tell,
    results: Results,
) -> list[str]:
    """All measurements, those of as many brokers that run before them on the same ones; `results` grows. Returns the
    names of those that failed, which costs the others nothing. A Ctrl-C ends it.
    """
    left = dict.fromkeys(measurements)
    kinds = groupby(measurements.items(), lambda item: (item[1].brokers, item[1].starts_it))
    try:
        for (brokers, starts_it), same in kinds:
            settings = SETTINGS if brokers == 1 else {**SETTINGS, **REPLICATED}
            made = [make(where / f"{index}-{brokers}", brokers, settings) for index, make in enumerate(makes.values())]
            with there(made, starts_it, tell):
                for name, measurement in same:
                    try:
                        results |= measure(name, measurement, bench, made, rounds, tell)
                        del left[name]
                    except FAILURES as error:
                        tell(f"[red]{name} failed[/red]: {error}")
    except KeyboardInterrupt:
        tell("stopped")
    return list(left)


@contextmanager
def there(systems: Sequence[System], starts_it: bool, tell: Tell) -> Iterator[None]:
    """Run the systems, unless the measurement does so itself; their data goes in the end."""
    with ExitStack() as stack:
        for system in systems:
            stack.callback(remove, system)
            if not starts_it:
                tell(f"starting {system.name}")
                stack.enter_context(running(system))
        yield


def own_limits(bench: Bench, measurements: Mapping[str, Measurement], tell: Tell) -> dict[str, float]:
    """What the clients could do at most, by measurement."""
    limits = {name: row.own_limit(bench) for name, row in measurements.items() if row.own_limit is not None}
    for name, limit in limits.items():
        tell(f"{name}: the client's own limit is {limit.most:,.0f} {limit.unit}")
    return {name: limit.most for name, limit in limits.items()}


def _named_executable(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name or not os.access(path, os.X_OK) or name in (OURS, THEIRS):
        raise click.BadParameter(f"{text}: NAME=PATH, with a name of its own and an executable", param_hint="--also")
    return name, Path(path).absolute()


if __name__ == "__main__":
    main()
