"""`python -m benchmarks`: measures both systems in alternating rounds and prints the table.

Both run throughout, with the same settings and on the same disk; only one is under load at a time, and who goes first
changes from round to round. The first rounds warm both up (a JVM compiles as it goes) and are not counted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import Console

from barnabas.common.clock import SystemClock
from benchmarks.load_generator import LoadGenerator, LoadGeneratorError
from benchmarks.measurements import FULL, MANY, MEASUREMENTS, ONE, QUICK, Bench, Samples
from benchmarks.report import publish, rows
from benchmarks.systems import Apache, Barnabas, System
from tests.support.kafka_jars import KafkaRuntimeError, kafka_runtime

WARM_UP_ROUNDS = 2
Measure = Callable[[Bench, System], Samples]


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Counted rounds a measurement.")
@click.option("--only", multiple=True, type=click.Choice(list(MEASUREMENTS)), help="Leave out the others.")
@click.option("--systems", type=click.Choice(["both", "barnabas", "apache"]), default="both", show_default=True)
@click.option("--quick", is_flag=True, help="Short runs: to try it out, not to judge by.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
def main(rounds: int, only: tuple[str, ...], systems: str, quick: bool, check: bool) -> None:
    """Compare Barnabas with Apache Kafka on this machine."""
    console = Console(stderr=True)
    directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        try:
            runtime, clock = kafka_runtime(), SystemClock()
            bench = Bench(runtime, LoadGenerator(directory, clock), clock, QUICK if quick else FULL)
        except (KafkaRuntimeError, LoadGeneratorError) as error:
            sys.exit(str(error))
        every: dict[str, System] = {"apache": Apache(runtime, directory), "barnabas": Barnabas(directory)}
        chosen = [system for name, system in every.items() if systems in (name, "both")]
        limits = {f"{loop.connections}x{loop.in_flight}": bench.generator.own_limit(loop, 1000) for loop in (MANY, ONE)}
        for name, limit in limits.items():
            console.print(f"load generator's own limit, {name}: {limit.requests_per_second:,.0f} requests/s")
        for system in chosen:
            console.print(f"starting {system.name}")
            system.start()
            stack.callback(system.stop)
        measures = {name: MEASUREMENTS[name] for name in only or MEASUREMENTS}
        results = _measure(bench, chosen, measures, rounds, console)
    path = publish(results, {"rounds": rounds, "quick": quick}, clock)
    console.print(f"samples in {os.path.relpath(path)}")
    if check and any(row.is_met is False for row in rows(results)):
        sys.exit("a target was missed")


def _measure(
    bench: Bench, systems: Sequence[System], measures: dict[str, Measure], rounds: int, console: Console
) -> dict[str, dict[str, list[float]]]:
    results: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, measure in measures.items():
        for number in range(1 - WARM_UP_ROUNDS, rounds + 1):
            in_turn = systems if number % 2 else systems[::-1]
            for system in in_turn:
                samples = measure(bench, system)
                told = ", ".join(f"{figure} {value:,.4g}" for figure, value in samples.items())
                label = "warm-up" if number <= 0 else f"{number}/{rounds}"
                console.print(f"{name} {label} [bold]{system.name}[/bold]: {told}", highlight=False)
                if number > 0:
                    for figure, value in samples.items():
                        results[figure][system.name].append(value)
    return results


if __name__ == "__main__":
    main()
