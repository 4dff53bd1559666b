"""Requests that are stuck, on objects made for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.cluster.stuck import LOOKS, StuckRequests


class FakeRequest:
    """A request of an API, which is known by its identity."""

    def __init__(self, key: int = 0) -> None:
        self.buffer = memoryview(bytes((0, key)))


class FakeConnection(SimpleNamespace):
    """A connection, which is known by its identity."""

    __hash__ = object.__hash__


def broker(
    *,
    is_sound: bool = True,
    is_reading: bool = True,
    sleeping: int = 1,
    requests: tuple[Any, ...] = (),
    received: bytes = b"",
) -> Any:
    """A broker with these requests in its queue, and these bytes in a connection."""
    connection = FakeConnection(
        is_muted=False, outgoing=None, is_closed=False, fd=7, expected_bytes=4, last_active_ns=0
    )
    channel = SimpleNamespace(
        requests=SimpleNamespace(queue=list(requests), sleeping_handlers=lambda: sleeping), _responses={}
    )
    processor = SimpleNamespace(connections=lambda: [connection], _is_reading=is_reading)
    purgatory = SimpleNamespace(_lists={}, name="none")
    network = SimpleNamespace(channel=channel, sockets=SimpleNamespace(processors=lambda: [processor]))
    socket = SimpleNamespace(pollable=SimpleNamespace(received=received))
    return SimpleNamespace(
        name="broker-0",
        disk=SimpleNamespace(faults=SimpleNamespace(is_sound=is_sound)),
        is_running=True,
        process=SimpleNamespace(is_paused=False, monotonic_ns=lambda: 0, descriptors={7: socket}),
        connection=connection,
        server=SimpleNamespace(
            services=SimpleNamespace(purgatories=SimpleNamespace(produce=purgatory, fetch=purgatory)), network=network
        ),
    )


def problems(found: Any, looks: int = LOOKS) -> list[str]:
    """What so many looks at a broker find."""
    stuck = StuckRequests(SimpleNamespace(brokers=[found]))
    for _ in range(looks):
        stuck.look()
    return stuck.problems


def test_bytes_that_nobody_reads_are_stuck() -> None:
    text = "broker-0: bytes wait in a connection, and its processor does not read them"
    assert problems(broker(received=b"1234")) == [text]
    assert problems(broker(received=b"1234"), LOOKS - 1) == []
    assert problems(broker(received=b"123")) == []  # the kernel reports four
    busy = broker(received=b"1234")
    stuck = StuckRequests(SimpleNamespace(brokers=[busy]))
    for _ in range(2 * LOOKS):
        stuck.look()
        busy.connection.last_active_ns += 1
    assert stuck.problems == []
    muted = broker(received=b"1234")
    muted.connection.is_muted = True
    assert problems(muted) == []
    assert problems(broker(is_reading=False, received=b"1234")) == [], "it stops"


@pytest.mark.parametrize(("sleeping", "count"), [(1, 1), (0, 0)])
def test_a_slow_disk_excuses_busy_handlers_but_none_that_sleeps(sleeping: int, count: int) -> None:
    found = problems(broker(is_sound=False, sleeping=sleeping, requests=(FakeRequest(), None)))
    assert found == ["broker-0: a request waits in the queue, and a handler sleeps"] * count
    assert len(problems(broker(sleeping=sleeping, requests=(FakeRequest(),)))) == 1


@pytest.mark.parametrize(("key", "count"), [(3, 0), (4, 1), (6, 1), (7, 0)])
def test_a_push_waits_for_no_slow_disk(key: int, count: int) -> None:
    found = problems(broker(is_sound=False, sleeping=0, requests=(FakeRequest(key),)))
    assert found == ["broker-0: a push waits behind the requests of clients"] * count
