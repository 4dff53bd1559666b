"""What is left over in a node, on objects made for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.storage.scheduler import Scheduler
from barnabas.common.clock import FakeClock
from tests.simulation.cluster import leftovers

NODE, PEER, CLIENT = "10.0.0.1", "10.0.0.2", "10.0.1.1"


class FakeSocket:
    """A descriptor with an end of a connection."""

    def __init__(self, local: tuple[str, int], remote: tuple[str, int], *, is_at_end: bool = False) -> None:
        network = SimpleNamespace(listeners={(NODE, 9092): object()})
        self._end = SimpleNamespace(local=local, remote=remote, network=network, is_at_end=is_at_end, is_reset=False)


def node(names: list[str], sockets: list[FakeSocket]) -> Any:
    """A node with these threads, and those of another process."""
    process = SimpleNamespace(descriptors=dict(enumerate(sockets)), scheduler=SimpleNamespace(tasks=[]))
    process.scheduler.tasks = [SimpleNamespace(name=name, process=process) for name in names]
    process.scheduler.tasks += [SimpleNamespace(name=name, process=None) for name in names]
    return SimpleNamespace(process=process)


def test_a_thread_that_was_replaced_and_runs_on_is_left_over() -> None:
    assert not list(leftovers._threads(node(["main", "ReplicaFetcherThread-0-1"], [])))
    found = list(leftovers._threads(node(["main", "ReplicaFetcherThread-0-1", "ReplicaFetcherThread-0-1"], [])))
    assert found == ["2 threads are ReplicaFetcherThread-0-1"]


def test_a_task_that_is_due_once_is_left_over() -> None:
    scheduler = Scheduler(0, FakeClock())
    server = SimpleNamespace(_scheduler=scheduler)
    scheduler.schedule("often", lambda: None, 10)
    assert not list(leftovers._tasks(server))
    late = scheduler.schedule_once("delete", lambda: None, 10)
    assert list(leftovers._tasks(server)) == ["background tasks are due once: ['delete']"]
    late.cancel()
    assert not list(leftovers._tasks(server))


def test_an_accepted_connection_whose_other_end_has_gone_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "Socket", FakeSocket)
    accepted, own = (NODE, 9092), (NODE, 32768)
    sockets = [
        FakeSocket(accepted, (PEER, 1)),
        FakeSocket(own, (PEER, 9092), is_at_end=True),
        FakeSocket(accepted, (PEER, 2), is_at_end=True),
        FakeSocket(accepted, (CLIENT, 3)),
    ]
    assert list(leftovers._connections(node([], sockets), {NODE, PEER})) == [
        "descriptor 2 is a connection that 10.0.0.2 has closed",
        "descriptor 3 is a connection with 10.0.1.1",
    ]


def test_a_controller_that_does_not_know_what_is_committed_is_left_behind() -> None:
    controller: Any = SimpleNamespace(committed_offset=4)
    assert not list(leftovers._behind(controller, 4))
    assert list(leftovers._behind(controller, 5)) == ["it knows what is committed up to 4, and others up to 5"]
