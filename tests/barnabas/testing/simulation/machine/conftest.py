"""A simulated machine inside a test: nothing of the standard library is replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

from barnabas.testing.simulation.machine import scheduler as scheduling
from barnabas.testing.simulation.machine.network import sockets
from barnabas.testing.simulation.machine.network.links import Network
from barnabas.testing.simulation.machine.process import Process
from barnabas.testing.simulation.machine.scheduler import Pace, Reason, Scheduler, Task


class Machine:
    """A scheduler with its network."""

    def __init__(self, seed: int, pace: Pace | None = None) -> None:
        self.scheduler = Scheduler(seed, pace)
        scheduling.activate(self.scheduler)
        self.network = Network(self.scheduler)
        sockets.use(self.network)
        self.processes = 0

    def process(self, name: str = "") -> Process:
        """A new process with an address of its own."""
        self.processes += 1
        return Process(self.scheduler, name or f"process-{self.processes}", f"10.0.0.{self.processes}")

    def run(self, *bodies: Callable[[], object]) -> None:
        """Run each body as a process of its own, until all have ended."""

        def run_one(body: Callable[[], object]) -> None:
            try:
                body()
            finally:
                ended.append(body)
                self.scheduler.wake(waiting[0])

        def main() -> None:
            assert self.scheduler.current is not None
            waiting.append(self.scheduler.current)
            for body in bodies:
                self.scheduler.spawn(self.process(), body.__name__, functools.partial(run_one, body))
            while len(ended) < len(bodies):
                self.scheduler.park(Reason("the end of the other tasks"))

        waiting: list[Task] = []
        ended: list[Callable[[], object]] = []
        self.scheduler.run(self.process("main"), main)
        assert self.scheduler.failures == []


@pytest.fixture
def make_machine() -> Iterator[Callable[..., Machine]]:
    """Make machines of a seed."""
    yield Machine
    scheduling.activate(None)
    sockets.use(None)


@pytest.fixture
def machine(make_machine: Callable[..., Machine]) -> Machine:
    """A machine that interrupts its tasks often."""
    return make_machine(1, Pace(2.0, 0.01, 5_000_000))
