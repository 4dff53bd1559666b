"""What is measured beside many connections that do nothing, and with many consumer groups: on one broker.

Each starts a system on empty storage.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from benchmarks.load.members import await_coordinator
from benchmarks.systems import System, memory_mb, port_of, remove, running
from benchmarks.wide import figures, topics
from benchmarks.wide.group_members import connected
from benchmarks.wide.measures import POLL_MS, WRITTEN, Sample, Tools, connection, idle_cpu_percent, warm_rate
from benchmarks.workloads.requests import IdleConnections

TOPIC: Final = "wide-0"
PARTITIONS: Final = 6  # that each group assigns to its member


def idle_connections(tools: Tools, system: System, count: int) -> Generator[Sample, None, None]:
    """Open connections that send one ApiVersions and then nothing. Measure the idle system, and then the rate of a load
    beside them.
    """
    try:
        with running(system), IdleConnections(port_of(system)) as idle:
            _create(system, WRITTEN)
            idle.hold(count)
            tools.pause(tools.times.settle_ms)
            yield figures.IDLE_CPU_ONE, idle_cpu_percent(tools, system)
            yield figures.MEMORY_ONE, sum(memory_mb(system).values())
            yield figures.RATE, warm_rate(tools, port_of(system), TOPIC, WRITTEN)
            idle.check()
    finally:
        remove(system)


def consumer_groups(tools: Tools, system: System, count: int) -> Generator[Sample, None, None]:
    """Let a member join each of this number of groups (`group_members.py`), all at once. Measure the time until all
    have their assignment, and then what the groups cost while there is nothing but their heartbeats.
    """
    group_ids = [f"group-{number}" for number in range(count)]
    try:
        with running(system):
            _create(system, PARTITIONS)
            await_coordinator(port_of(system), group_ids[0])
            with connected(port_of(system), group_ids, TOPIC, tools.clock) as members:
                members.await_coordinators(tools.pause)
                start_ns = tools.clock.monotonic_ns()
                members.join(tools.pause)
                yield figures.ASSIGNED, tools.seconds_since(start_ns)
                members.own()
                members.beat(tools.times.settle_ms, tools.pause)
                idle = idle_cpu_percent(tools, system, lambda window_ms: members.beat(window_ms, tools.pause))
                yield figures.IDLE_CPU_ONE, idle
                yield figures.MEMORY_ONE, sum(memory_mb(system).values())
    finally:
        remove(system)


def _create(system: System, partitions: int) -> None:
    """Create the topic and wait until its partitions are led."""
    with connection(port_of(system)) as broker:
        topics.create(broker, {TOPIC: partitions}, 1)
        topics.await_led([broker], {TOPIC: partitions}, POLL_MS)
