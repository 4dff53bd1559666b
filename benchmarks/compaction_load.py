"""`python -m benchmarks.compaction_load`: the effect of the log cleaner on producers, in both systems.

The load generator runs a closed loop of small produce requests on one topic. It runs first alone, then while one
unthrottled cleaner thread compacts the log of another topic (written as by `benchmarks.compaction`). Only complete
one-second turns that ended before the log was clean count as "while compacted".
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import click
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.clock import SystemClock
from benchmarks.compaction import SETTINGS, TOPIC, compact, is_clean, place, roll, write_log
from benchmarks.harness import chosen, directory, systems_option
from benchmarks.load.load_generator import LoadGenerator, Loop, LoopResult
from benchmarks.systems import Kind, System, port_of, remove, running
from tests.support.waiting import eventually

LOADS = {"32 x 2": Loop(32, 2), "1 x 1": Loop(1, 1)}
LOAD_TOPIC = "load"
PARTITIONS = 6
WARM_UP_MS, ALONE_MS, TURN_MS = 3000, 4000, 1000


def measure(system: System, source: Path, generator: LoadGenerator, loop: Loop) -> tuple[LoopResult, list[LoopResult]]:
    """Measure the loop alone, and in each second of the compaction."""
    place(system, source)
    with running(system):
        port = port_of(system)
        admin = AdminClient({"bootstrap.servers": system.bootstrap})
        eventually("the topic exists", lambda: TOPIC in admin.list_topics(timeout=10).topics)
        admin.create_topics([NewTopic(LOAD_TOPIC, PARTITIONS, 1)])[LOAD_TOPIC].result(30)
        roll(system.bootstrap)
        work = generator.produce_work(port, LOAD_TOPIC, PARTITIONS)
        alone = generator.run(port, work, loop, WARM_UP_MS, ALONE_MS)
        compact(admin)
        during: list[LoopResult] = []
        while not is_clean(system.data_directory):
            during.append(generator.run(port, work, loop, 0, TURN_MS))
    return alone, during[:-1] or during


@click.command()
@click.option("--records", default=5_000_000, show_default=True)
@systems_option
@click.option("--load", "loads", type=click.Choice(list(LOADS)), multiple=True, default=tuple(LOADS))
def main(records: int, systems: str, loads: tuple[str, ...]) -> None:
    """Compare the log cleaners' effect on producers."""
    with directory("compaction-load") as where:
        source = where / "log"
        source.mkdir()
        write_log(source, records, records // 10)
        generator = LoadGenerator(where / "generator", SystemClock())
        for name, make in chosen(systems).items():
            for load in loads:
                system = make(where / "system", Kind(), SETTINGS)
                alone, during = measure(system, source, generator, LOADS[load])
                remove(system)
                click.echo(
                    f"{name}, {load}: alone {_summary([alone])}; while {records:,} records are compacted, "
                    f"{len(during)} s: {_summary(during)}"
                )


def _summary(results: list[LoopResult]) -> str:
    return (
        f"{median(result.requests_per_second for result in results):,.0f}/s, "
        f"p50 {median(result.p50_ms for result in results):.2f} ms, "
        f"p99 {median(result.p99_ms for result in results):.2f} ms"
    )


if __name__ == "__main__":
    main()
