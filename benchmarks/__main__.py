"""`python -m benchmarks`: measures both systems in alternating rounds. It prints a table, draws a picture and adds a
line to the history.

Both systems run throughout, with the same settings and on the same disk. Only one is under load at a time, and the
order changes from round to round. Rounds count once both systems are warm (`rounds.py`).
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
from benchmarks.harness import chosen, directory, systems_option
from benchmarks.load import peers
from benchmarks.load.clients import ClientError
from benchmarks.load.load_generator import LoadGenerator, LoadGeneratorError
from benchmarks.load.peers import PEERS
from benchmarks.report.figures import KFAKE, OURS, THEIRS
from benchmarks.report.plot import draw
from benchmarks.report.runs import HISTORY, PICTURE, Run, append, versions
from benchmarks.report.table import console, missed, table
from benchmarks.rounds import Progress, Results, measure
from benchmarks.systems import REPLICATED, SETTINGS, Make, System, barnabas, own_executable, peer, remove, running
from benchmarks.workloads import MEASUREMENTS
from tests.support.kafka.kafka_jars import kafka_runtime

FAILURES = (AssertionError, ClientError, LoadGeneratorError, KafkaException, OSError)


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Counted rounds of each measurement.")
@click.option("--only", multiple=True, type=click.Choice(list(MEASUREMENTS)), help="Run only this measurement.")
@systems_option
@click.option("--also", multiple=True, metavar="NAME=BARNABAS", help="Add a column for another barnabas executable.")
@click.option(
    "--peer",
    "wanted",
    multiple=True,
    type=click.Choice(list(PEERS)),
    help="Add a column for this broker, too, if it can be had. [default: kfake, beside both systems]",
)
@click.option("--no-peers", is_flag=True, help="Leave these columns out.")
@click.option("--quick", is_flag=True, help="Short runs, to try it out; not kept in the history.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--history", type=click.Path(path_type=Path), default=HISTORY, help="Append the run to this file.")
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Write the picture here (default: results/, after a full run)."
)
def main(
    rounds: int,
    only: tuple[str, ...],
    systems: str,
    also: tuple[str, ...],
    wanted: tuple[str, ...],
    no_peers: bool,
    quick: bool,
    check: bool,
    history: Path,
    plot: Path | None,
) -> None:
    """Compare Barnabas with Apache Kafka on this machine."""
    clock = SystemClock()
    progress: Progress = console(stderr=True).print
    others = dict(map(_named_executable, also))
    results: Results = {}
    with directory("bench") as where:
        makes = chosen(systems) | {name: barnabas(name, path) for name, path in others.items()}
        measurements = {name: row for name, row in MEASUREMENTS.items() if not only or name in only}
        if not no_peers and any(row.has_peers for row in measurements.values()):
            for name, command in peers.commands(wanted or ((KFAKE,) if systems == "both" else ()), progress).items():
                makes[name] = peer(name, command)
                others[name] = Path(command[0])
        bench = Bench(kafka_runtime(), LoadGenerator(where, clock), clock, QUICK if quick else FULL)
        limits = own_limits(bench, measurements, progress)
        failed = measure_all(bench, makes, measurements, rounds, where, progress, results)
    console().print(table(results))
    if not quick:
        ours = {OURS: own_executable()} if OURS in makes else {}
        append(Run.now(clock, rounds, versions({**ours, **others}), limits, results), history)
        progress(f"appended to {os.path.relpath(history)}")
    picture = plot or (PICTURE if not quick and not only and OURS in makes else None)
    if picture is not None and THEIRS in makes:
        draw(results, picture)
        progress(f"drawn: {os.path.relpath(picture)}")
    if short_of := missed(results):
        progress(f"missed: {'; '.join(short_of)}")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")
    if check and short_of:
        sys.exit("a target was missed")


def measure_all(
    bench: Bench,
    makes: Mapping[str, Make],
    measurements: Mapping[str, Measurement],
    rounds: int,
    where: Path,
    progress: Progress,
    results: Results,
) -> list[str]:
    """Run the measurements and add their samples to `results`. Returns the names of the failed ones.

    Neighbours of the same kind share the running systems. A failure does not stop the other measurements; Ctrl-C does.
    """
    left = dict.fromkeys(measurements)
    kinds = groupby(
        measurements.items(),
        lambda item: (item[1].kind, item[1].starts_it, item[1].is_ours_only, item[1].has_peers),
    )
    try:
        for (kind, starts_it, is_ours_only, has_peers), same in kinds:
            settings = SETTINGS if kind.brokers == 1 else {**SETTINGS, **REPLICATED}
            made = [
                make(where / f"{index}-{kind.brokers}", kind, settings)
                for index, (system, make) in enumerate(makes.items())
                if (system != THEIRS or not is_ours_only) and (system not in PEERS or has_peers)
            ]
            if not made:
                for name, _ in same:
                    progress(f"{name} is for Barnabas alone")
                    del left[name]
                continue
            with prepared(made, starts_it, progress):
                for name, measurement in same:
                    try:
                        results |= measure(name, measurement, bench, made, rounds, progress)
                        del left[name]
                    except FAILURES as error:
                        progress(f"[red]{name} failed[/red]: {error}")
    except KeyboardInterrupt:
        progress("stopped")
    return list(left)


@contextmanager
def prepared(systems: Sequence[System], starts_it: bool, progress: Progress) -> Iterator[None]:
    """Run the systems, unless the measurement starts them itself. Removes their data at the end."""
    with ExitStack() as stack:
        for system in systems:
            stack.callback(remove, system)
            if not starts_it:
                progress(f"starting {system.name}")
                stack.enter_context(running(system))
        yield


def own_limits(bench: Bench, measurements: Mapping[str, Measurement], progress: Progress) -> dict[str, float]:
    """Measure the clients' own limits, by measurement."""
    limits = {name: row.own_limit(bench) for name, row in measurements.items() if row.own_limit is not None}
    for name, limit in limits.items():
        progress(f"{name}: the client's own limit is {limit.most:,.0f} {limit.unit}")
    return {name: limit.most for name, limit in limits.items()}


def _named_executable(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name or not os.access(path, os.X_OK) or name in (OURS, THEIRS, *PEERS):
        raise click.BadParameter(f"{text}: NAME=PATH needs an unused name and an executable", param_hint="--also")
    return name, Path(path).absolute()


if __name__ == "__main__":
    main()
