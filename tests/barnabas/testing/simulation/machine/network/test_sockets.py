"""Tests sockets.py, streams.py, links.py and polling.py."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.testing.simulation.machine.network.polling import Epoll, current_process
from barnabas.testing.simulation.machine.network.sockets import Socket, connections_of, getaddrinfo, socketpair
from barnabas.testing.simulation.machine.patches import read, write
from barnabas.testing.simulation.machine.scheduler import NS_PER_S, Pace
from tests.barnabas.testing.simulation.machine.conftest import Machine

PORT = 9092
EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET


class Pair:
    """A server at 10.0.0.2 and a client at 10.0.0.3, each with one connection."""

    def __init__(
        self, machine: Machine, server: Callable[[Socket], object], client: Callable[[Socket], object]
    ) -> None:
        def serving() -> None:
            with Socket() as listener:
                listener.bind(("", PORT))
                listener.listen(5)
                accepted, peer = listener.accept()
                assert peer[0] == "10.0.0.3"
                with accepted:
                    server(accepted)

        def asking() -> None:
            machine.scheduler.sleep_ns(NS_PER_S)
            with Socket() as sock:
                sock.connect(("10.0.0.2", PORT))
                client(sock)

        machine.run(serving, asking)


@pytest.mark.parametrize("seed", range(5))
def test_all_bytes_arrive_in_order(make_machine: Callable[..., Machine], seed: int) -> None:
    machine = make_machine(seed)
    data = bytes(range(256)) * 4000
    got = bytearray()

    def reading(sock: Socket) -> None:
        while chunk := sock.recv(10_000):
            got.extend(chunk)

    Pair(machine, reading, lambda sock: sock.sendall(data))
    assert got == data


def test_descriptors_of_sockets_are_read_and_written(machine: Machine) -> None:
    def answering(sock: Socket) -> None:
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            read(sock.fileno(), 10)
        sock.setblocking(True)
        assert read(sock.fileno(), 10) == b"?"
        assert write(sock.fileno(), b"!") == 1

    def asking(sock: Socket) -> None:
        machine.scheduler.sleep_ns(NS_PER_S)
        sock.sendall(b"?")
        assert [read(sock.fileno(), 10), read(sock.fileno(), 10)] == [b"!", b""]

    Pair(machine, answering, asking)


def test_a_non_blocking_socket_sends_what_fits(machine: Machine) -> None:
    machine.network.buffer_bytes = 1000
    counts: list[Any] = []

    def sending(sock: Socket) -> None:
        sock.setblocking(False)
        counts.append(sock.send(bytes(5000)))
        with pytest.raises(BlockingIOError):
            sock.send(b"more")

    Pair(machine, sending, lambda sock: machine.scheduler.sleep_ns(NS_PER_S))
    assert counts == [1000]


def test_timeouts_of_sockets(machine: Machine) -> None:
    def asking(sock: Socket) -> None:
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, b"".join(n.to_bytes(8, "little") for n in (0, 500_000)))
        before = machine.scheduler.now_ns
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        assert machine.scheduler.now_ns - before >= NS_PER_S // 2

    Pair(machine, lambda sock: machine.scheduler.sleep_ns(5 * NS_PER_S), asking)


def test_waitall_waits_for_all_and_peek_leaves_all(machine: Machine) -> None:
    def server(sock: Socket) -> None:
        for _ in range(5):
            sock.sendall(b"ab")
            machine.scheduler.sleep_ns(10_000_000)

    def client(sock: Socket) -> None:
        assert sock.recv(10, socket.MSG_WAITALL) == b"ababababab"
        assert sock.recv(10, socket.MSG_PEEK) == b""

    Pair(machine, server, client)


def test_nobody_listens(machine: Machine) -> None:
    def client() -> None:
        with Socket() as sock, pytest.raises(ConnectionRefusedError):
            sock.connect(("10.0.0.77", PORT))

    machine.run(client)


def test_a_close_with_unread_bytes_resets(machine: Machine) -> None:
    def client(sock: Socket) -> None:
        sock.sendall(b"never read")
        machine.scheduler.sleep_ns(NS_PER_S)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)

    Pair(machine, lambda _sock: machine.scheduler.sleep_ns(NS_PER_S // 2), client)


def test_a_killed_process_ends_its_connections(machine: Machine) -> None:
    seen: list[bytes] = []

    def serving() -> None:
        with Socket() as listener:
            listener.bind(("", PORT))
            listener.listen()
            listener.accept()
            victim = machine.scheduler.current
            assert victim is not None
            victim.process.kill()

    def main() -> None:
        machine.scheduler.spawn(machine.process(), "server", serving)
        machine.scheduler.sleep_ns(NS_PER_S)
        with Socket() as sock:
            sock.connect(("10.0.0.3", PORT))
            seen.append(sock.recv(1))
        with Socket() as sock, pytest.raises(ConnectionRefusedError):
            sock.connect(("10.0.0.3", PORT))

    machine.run(main)
    assert seen == [b""]


def test_a_cut_link_holds_what_is_sent(machine: Machine) -> None:
    def server(sock: Socket) -> None:
        machine.network.cut("10.0.0.2", "10.0.0.3")
        sock.sendall(b"late")
        machine.scheduler.sleep_ns(20 * NS_PER_S)
        machine.network.heal("10.0.0.2", "10.0.0.3")
        assert sock.recv(4) == b"fast"

    def client(sock: Socket) -> None:
        sock.sendall(b"fast")
        assert sock.recv(10) == b"late"
        assert machine.scheduler.now_ns >= 20 * NS_PER_S

    Pair(machine, server, client)


def test_nobody_connects_over_a_cut_link(machine: Machine) -> None:
    def server(sock: Socket) -> None:
        with Socket() as back:
            machine.network.cut("10.0.0.3", "10.0.0.2")
            back.settimeout(3)
            with pytest.raises(TimeoutError):
                back.connect(("10.0.0.3", 1))

    Pair(machine, server, lambda _sock: machine.scheduler.sleep_ns(5 * NS_PER_S))


def test_nobody_reaches_listeners_that_are_shut_and_what_is_open_goes_on(machine: Machine) -> None:
    def server(sock: Socket) -> None:
        machine.network.shut("10.0.0.2", "10.0.0.3")
        sock.sendall(b"o")
        with Socket() as back:
            back.settimeout(3)
            with pytest.raises(TimeoutError):
                back.connect(("10.0.0.3", 1))
        machine.network.open("10.0.0.2", "10.0.0.3")
        with Socket() as back, pytest.raises(ConnectionRefusedError):
            back.connect(("10.0.0.3", 1))

    def client(sock: Socket) -> None:
        assert sock.recv(4) == b"o"
        machine.scheduler.sleep_ns(5 * NS_PER_S)

    Pair(machine, server, client)


def test_shutdown_wakes_a_reader_of_the_same_process(machine: Machine) -> None:
    def client(sock: Socket) -> None:
        machine.scheduler.call_at(machine.scheduler.now_ns + NS_PER_S, lambda: sock._connected().shut(
            reading=True, writing=True
        ))  # fmt: skip
        assert sock.recv(1) == b""

    Pair(machine, lambda sock: sock.recv(1), client)


def test_an_edge_is_reported_once(machine: Machine) -> None:
    def server(sock: Socket) -> None:
        with Epoll() as epoll:
            epoll.register(sock, EDGES)
            assert epoll.poll(5) == [(sock.fileno(), select.EPOLLOUT)]
            assert epoll.poll(5) == [(sock.fileno(), select.EPOLLIN | select.EPOLLOUT)]
            assert epoll.poll(0.01) == []
            assert sock.recv(1) == b"a"
            assert epoll.poll(0.01) == []
            events = dict(epoll.poll(5))[sock.fileno()]
            assert events & select.EPOLLRDHUP

    def client(sock: Socket) -> None:
        machine.scheduler.sleep_ns(NS_PER_S)
        sock.sendall(b"ab")
        machine.scheduler.sleep_ns(NS_PER_S)

    Pair(machine, server, client)


def test_a_level_is_reported_while_it_lasts(machine: Machine) -> None:
    def server(sock: Socket) -> None:
        with Epoll() as epoll:
            epoll.register(sock, select.EPOLLIN)
            assert epoll.poll(5) == epoll.poll(5) == [(sock.fileno(), select.EPOLLIN)]
            sock.recv(10)
            assert epoll.poll(0.01) == []
            epoll.modify(sock, select.EPOLLOUT)
            assert epoll.poll(0.01) == [(sock.fileno(), select.EPOLLOUT)]
            epoll.unregister(sock)
            assert epoll.poll(0.01) == []

    def client(sock: Socket) -> None:
        sock.sendall(b"ab")
        machine.scheduler.sleep_ns(NS_PER_S)

    Pair(machine, server, client)


def test_space_is_an_edge_after_a_full_buffer(machine: Machine) -> None:
    machine.network.buffer_bytes = 1000

    def server(sock: Socket) -> None:
        sock.setblocking(False)
        with Epoll() as epoll:
            epoll.register(sock, EDGES)
            epoll.poll(1)
            assert sock.send(bytes(3000)) == 1000
            assert epoll.poll(0.5) == []
            assert epoll.poll(5) == [(sock.fileno(), select.EPOLLOUT)]

    def client(sock: Socket) -> None:
        machine.scheduler.sleep_ns(NS_PER_S)
        assert len(sock.recv(1000, socket.MSG_WAITALL)) == 1000
        machine.scheduler.sleep_ns(NS_PER_S)

    Pair(machine, server, client)


def test_two_ends_in_one_process(machine: Machine) -> None:
    def body() -> None:
        one, other = socketpair()
        with one, other:
            one.send(b"x")
            assert other.recv(1) == b"x"

    machine.run(body)


def test_names_of_hosts(machine: Machine) -> None:
    machine.network.names["broker-0"] = "10.0.0.9"

    def body() -> None:
        assert getaddrinfo("broker-0", 1)[0][4] == ("10.0.0.9", 1)
        assert getaddrinfo(None, 1, flags=socket.AI_PASSIVE)[0][4] == ("0.0.0.0", 1)
        with pytest.raises(socket.gaierror):
            getaddrinfo("elsewhere.example", 1)

    machine.run(body)


def test_a_calm_network_delivers_whole(make_machine: Callable[..., Machine]) -> None:
    machine = make_machine(3, Pace(100.0, 0.0, 1))
    machine.network.split_chance = 0.0
    got: list[bytes] = []
    Pair(machine, lambda sock: got.append(sock.recv(1000)), lambda sock: sock.sendall(b"a frame"))
    assert got == [b"a frame"]


@pytest.mark.parametrize("seed", range(10))
def test_a_connection_breaks_with_half_of_what_flies(make_machine: Callable[..., Machine], seed: int) -> None:
    machine = make_machine(seed, Pace(1000.0, 0.0, 1))
    got = bytearray()
    errors: list[type[OSError]] = []

    def until_the_end(sock: Socket) -> None:
        try:
            while chunk := sock.recv(100):
                got.extend(chunk)
        except OSError as error:
            errors.append(type(error))

    def breaking(sock: Socket) -> None:
        sock.sendall(bytes(range(200)))
        (end,) = connections_of(current_process())
        end.break_off(random.Random(seed))
        until_the_end(sock)

    Pair(machine, until_the_end, breaking)
    assert errors == [ConnectionResetError] * 2
    assert bytes(range(200)).startswith(bytes(got))


def test_a_slow_address(machine: Machine) -> None:
    times: list[int] = []

    def asking(sock: Socket) -> None:
        for delay_ns in (0, NS_PER_S, 0):
            machine.network.slow_down("10.0.0.2", delay_ns)
            before_ns = machine.scheduler.now_ns
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
            times.append((machine.scheduler.now_ns - before_ns) // NS_PER_S)

    def answering(sock: Socket) -> None:
        while data := sock.recv(1):
            sock.sendall(data)

    Pair(machine, answering, asking)
    assert times == [0, 2, 0]
