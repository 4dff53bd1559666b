"""Small requests in closed loops, sent by the load generator in C: alone, and beside idle connections."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from benchmarks.bench import MANY, PARTITIONS, Bench, Measure, Measurement, OwnLimit, Round, Samples
from benchmarks.load.load_generator import Loop
from benchmarks.systems import System, memory_mb, port_of, used_cpu_seconds

CONNECTIONS_PER_ADDRESS = 2000  # far below the ports of an address, since some are still in TIME_WAIT
DESCRIPTORS_KEPT = 1000  # of a process's limit: for logs and for busy connections
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # as a frame, without a client id
HOST = "127.0.0.1"
LIMIT_MS = 1000
ANSWER_BYTES = {"produce": 60, "metadata": 300}  # approximate, for a topic with six partitions
IDLE = ("5,000 idle connections", "20,000 idle connections")
_addresses = (f"127.1.{high}.{low}" for high in count() for low in range(1, 255))


def small(api: str, loop: Loop) -> Measure:
    """Measure requests of one 100 B record, acks=1 ("produce"), or for one topic's metadata ("metadata")."""

    @contextmanager
    def measure(bench: Bench, system: System) -> Iterator[Round]:
        name = f"small {api} {loop.connections}x{loop.in_flight}"
        port, size = port_of(system), bench.size
        with bench.topic(system) as topic:
            generator = bench.generator
            if api == "produce":
                work = generator.produce_work(port, topic, PARTITIONS)
            else:
                work = generator.metadata_work(port, topic)

            def once() -> Samples:
                before = used_cpu_seconds(system)
                result = generator.run(port, work, loop, size.loop_warm_up_ms, size.loop_ms)
                return {
                    name: result.requests_per_second,
                    f"{name}, CPU": (used_cpu_seconds(system) - before) / result.answers * 1e6,
                    f"{name}, p50": result.p50_ms,
                    f"{name}, p99": result.p99_ms,
                    f"{name}, p99.9": result.p999_ms,
                }

            yield once

    return measure


def own_limit(api: str, loop: Loop) -> Callable[[Bench], OwnLimit]:
    """Measure the load generator's rate against the null responder, with responses of about the same size."""

    def measure(bench: Bench) -> OwnLimit:
        result = bench.generator.own_limit(loop, LIMIT_MS, ANSWER_BYTES[api])
        return OwnLimit(result.requests_per_second, "requests/s")

    return measure


def small_row(api: str, loop: Loop) -> Measurement:
    """Return the table's row of a `small` measurement."""
    warm_by = f"small {api} {loop.connections}x{loop.in_flight}"
    return Measurement(small(api, loop), warm_by, own_limit=own_limit(api, loop))


@contextmanager
def beside_idle_connections(bench: Bench, system: System) -> Iterator[Round]:
    """Measure small produce requests, 32 x 2: alone, beside 5,000 idle connections, and beside 20,000. Reports the
    share of the rate that is kept, and the memory of all processes. Each idle connection has sent one ApiVersions.
    """
    port, size = port_of(system), bench.size
    with bench.topic(system) as topic:
        work = bench.generator.produce_work(port, topic, PARTITIONS)

        def rate() -> float:
            return bench.generator.run(port, work, MANY, size.loop_warm_up_ms, size.loop_ms).requests_per_second

        def once() -> Samples:
            alone = rate()
            samples = {"no idle connections, rate": alone}
            with IdleConnections(port) as idle:
                for name, wanted in zip(IDLE, size.idle, strict=True):
                    idle.hold(possible(wanted))
                    samples[f"{name}, rate kept"] = rate() / alone
                    samples[f"{name}, memory"] = sum(memory_mb(system).values())
                idle.check()
            return samples

        yield once


def held(bench: Bench) -> OwnLimit:
    """Return the number of connections that stand for 20,000 on this machine."""
    return OwnLimit(possible(bench.size.idle[-1]), "connections")


def possible(connections: int) -> int:
    """Return this number of connections, or the process's limit if that is lower."""
    return min(connections, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - DESCRIPTORS_KEPT)


class IdleConnections:
    """Idle connections. The context manager closes them. Used by one thread.

    They come from many loopback addresses, new ones each time. An address has only about 28,000 ports for connections
    to one server port, and the ports of closed connections stay in TIME_WAIT for a minute.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: list[socket.socket] = []
        self._closing = ExitStack()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def __enter__(self) -> IdleConnections:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def hold(self, wanted: int) -> None:
        """Open connections until `wanted` are open."""
        while len(self._connections) < wanted:
            source = next(_addresses)
            for _ in range(min(CONNECTIONS_PER_ADDRESS, wanted - len(self._connections))):
                self._open(source)

    def check(self) -> None:
        """Check that the broker has closed none. Raises AssertionError."""
        closed = sum(1 for connection in self._connections if not _is_silent(connection))
        assert closed == 0, f"{closed} of {len(self._connections)} idle connections were closed"

    def _open(self, source: str) -> None:
        connection = socket.create_connection((HOST, self._port), timeout=60, source_address=(source, 0))
        self._closing.callback(connection.close)
        connection.sendall(API_VERSIONS)
        answer = connection.recv(4096)
        assert len(answer) >= 4, "the broker closed the connection"
        while len(answer) < 4 + int.from_bytes(answer[:4]):
            answer += connection.recv(4096)
        self._connections.append(connection)


def _is_silent(connection: socket.socket) -> bool:
    """Check whether a connection is open and has no unread bytes."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
