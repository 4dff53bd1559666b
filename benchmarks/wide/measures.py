"""What is measured with a number of partitions: on three brokers, and on one. Each starts a system on empty storage."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from barnabas.client.connection import NodeConnection
from barnabas.cluster import HOST
from barnabas.common.clock import Clock
from benchmarks.load.load_generator import LoadGenerator, Loop
from benchmarks.rounds import WARM_UPS_MAX, is_warm
from benchmarks.systems import System, memory_mb, port_of, remove, start, used_cpu_seconds
from benchmarks.wide import figures, topics
from benchmarks.workloads.partitions import write_to_each
from tests.support.waiting import eventually

LOOP: Final = Loop(connections=10, in_flight=2)
WRITTEN: Final = 10  # partitions that get the load, whatever their number
CALM_MS: Final = 200  # before a run of the load counts
KILLED: Final = 1  # the broker's id
POLL_MS: Final = 20
FAILOVER_POLL_MS: Final = 100  # a listing of 1,000 partitions takes a while, and this one waits for seconds
STOP_TIMEOUT_S: Final = 330
CLEAN_MARK: Final = ".kafka_cleanshutdown"  # of a broker that flushed its logs before it ended
Sample = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Times:
    """How long things last."""

    settle_ms: int  # before CPU time and memory are read
    window_ms: int  # in which CPU time is counted
    load_ms: int  # of one run of the load


@dataclass(frozen=True, slots=True)
class Tools:
    """What the measurements share."""

    generator: LoadGenerator
    clock: Clock
    times: Times

    def seconds_since(self, start_ns: int) -> float:
        """Return the time since `start_ns` of the monotonic clock."""
        return (self.clock.monotonic_ns() - start_ns) / 1e9

    def pause(self, milliseconds: int) -> None:
        """Wait for a fixed time, asleep: a busy wait would take CPU time from the system."""
        end_ms = self.clock.monotonic_ms() + milliseconds
        while (left_ms := end_ms - self.clock.monotonic_ms()) > 0:
            select.select([], [], [], left_ms / 1000)


Measure = Callable[[Tools, System, int], Generator[Sample, None, None]]


def three_brokers(tools: Tools, system: System, partitions: int) -> Generator[Sample, None, None]:
    """Create the partitions in three replicas, leave the system alone, and then kill a broker."""
    made = topics.split(partitions)
    try:
        start(system)
        with ExitStack() as stack:
            brokers = [stack.enter_context(connection(port)) for port in ports(system)]
            for broker in brokers:
                topics.leaders(broker, "none")  # connects
            start_ns = tools.clock.monotonic_ns()
            topics.create(brokers[0], made, len(brokers))
            yield figures.CREATED, tools.seconds_since(start_ns)
            topics.await_led(brokers, made, POLL_MS)
            yield figures.KNOWN, tools.seconds_since(start_ns)
            tools.pause(tools.times.settle_ms)
            yield figures.IDLE_CPU, idle_cpu_percent(tools, system)
            yield figures.MEMORY_THREE, sum(memory_mb(system).values())
            led = [name for name in made if KILLED in topics.leaders(brokers[0], name)]
            assert led, f"broker {KILLED} leads nothing"
            start_ns = tools.clock.monotonic_ns()
            os.kill(system.pids[f"broker {KILLED}"], signal.SIGKILL)
            left = [broker for number, broker in enumerate(brokers) if number != KILLED]
            topics.await_led(left, made, FAILOVER_POLL_MS, KILLED)
            yield figures.FAILOVER, tools.seconds_since(start_ns)
    finally:
        system.stop()
        remove(system)


def one_broker(tools: Tools, system: System, partitions: int) -> Generator[Sample, None, None]:
    """Create the partitions with a record in each, restart the system, and load ten of them."""
    made = topics.split(partitions)
    first, last = next(iter(made)), next(reversed(made))
    try:
        start(system)
        with connection(port_of(system)) as broker:
            topics.create(broker, made, 1)
            topics.await_led([broker], made, POLL_MS)
        for name, size in made.items():
            write_to_each(system, name, size)
        start_ns = tools.clock.monotonic_ns()
        stop(system)
        yield figures.STOPPED, tools.seconds_since(start_ns)
        system.prepare()
        start_ns = tools.clock.monotonic_ns()
        system.launch()
        with connection(port_of(system)) as broker:
            eventually(
                "a record is acknowledged",
                lambda: topics.is_acknowledged(broker, last, made[last] - 1, tools.clock),
                topics.TIMEOUT_MS,
                POLL_MS,
            )
        yield figures.RESTARTED, tools.seconds_since(start_ns)
        system.await_usable()
        tools.pause(tools.times.settle_ms)
        yield figures.MEMORY_ONE, sum(memory_mb(system).values())
        yield figures.RATE, warm_rate(tools, port_of(system), first, min(WRITTEN, partitions))
    finally:
        system.stop()
        remove(system)


def idle_cpu_percent(tools: Tools, system: System, wait: Callable[[int], None] | None = None) -> float:
    """Return the CPU time of all processes within the window, as per cent of one core. `wait` lets the window pass;
    without it, nothing is sent meanwhile.
    """
    before_s, start_ns = used_cpu_seconds(system), tools.clock.monotonic_ns()
    (wait or tools.pause)(tools.times.window_ms)
    return 100 * (used_cpu_seconds(system) - before_s) / tools.seconds_since(start_ns)


def warm_rate(tools: Tools, port: int, topic: str, partitions: int) -> float:
    """Return the requests per second of a load of one record each, acks=1, into the first partitions of a topic.

    It runs until it is no longer faster than before (`rounds.py`), and then once more.
    """
    work = tools.generator.produce_work(port, topic, partitions)
    rates: list[float] = []
    while len(rates) < WARM_UPS_MAX and not is_warm(rates, more_is_better=True):
        rates.append(tools.generator.run(port, work, LOOP, CALM_MS, tools.times.load_ms).requests_per_second)
    return tools.generator.run(port, work, LOOP, CALM_MS, tools.times.load_ms).requests_per_second


def stop(system: System) -> None:
    """Stop a system and wait for as long as it takes: one that is killed meanwhile would have to recover its logs."""
    pids = system.pids
    main = pids.get("supervisor") or pids["broker 0"]
    descriptor = os.pidfd_open(main)
    try:
        os.kill(main, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], STOP_TIMEOUT_S)
        assert ended, f"{system.name} did not stop within {STOP_TIMEOUT_S} s"
    finally:
        os.close(descriptor)
        system.stop()
    assert (system.data_directory / CLEAN_MARK).exists(), f"{system.name} did not end cleanly"


def connection(port: int) -> NodeConnection:
    """Return a connection to a broker; it connects with its first request."""
    return NodeConnection(HOST, port, timeout_ms=topics.TIMEOUT_MS)


def ports(system: System) -> list[int]:
    """Return the port of each broker, by id."""
    return [int(address.rpartition(":")[2]) for address in system.bootstrap.split(",")]
