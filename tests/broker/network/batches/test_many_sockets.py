"""The C functions and their fallbacks receive from sockets and send to them alike."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.network.batches import many_sockets
from barnabas.broker.network.batches.many_sockets import (
    EACH_BYTES,
    python_receive_each,
    python_send_each,
    receive_each,
    send_each,
)

Receive = Callable[[list[int]], list[bytearray | int]]
Send = Callable[[list[int], list[bytes]], list[int]]
IS_C = receive_each is not python_receive_each
RECEIVE = {"python": python_receive_each} | ({"C": receive_each} if IS_C else {})
SEND = {"python": python_send_each} | ({"C": send_each} if IS_C else {})
CLOSED = 1_000_000  # beyond any process's descriptors


@pytest.fixture(params=RECEIVE)
def receive(request: pytest.FixtureRequest) -> Any:
    return RECEIVE[request.param]


@pytest.fixture(params=SEND)
def send(request: pytest.FixtureRequest) -> Any:
    return SEND[request.param]


Pairs = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Near ends that do not block, and far ones."""
    made = [socket.socketpair() for _ in range(5)]
    for near, _ in made:
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    yield made
    for near, far in made:
        near.close()
        far.close()


def descriptors(pairs: Pairs) -> list[int]:
    return [near.fileno() for near, _ in pairs]


def test_each_gets_what_came_to_its_socket(pairs: Pairs, receive: Receive) -> None:
    pairs[0][1].sendall(b"first")
    pairs[1][1].sendall(b"a" * EACH_BYTES + b"rest")
    pairs[2][1].close()
    received = receive([*descriptors(pairs[:4]), CLOSED])
    assert received == [b"first", b"a" * EACH_BYTES, b"", -errno.EAGAIN, -errno.EBADF]
    assert receive(descriptors(pairs[:2])) == [-errno.EAGAIN, b"rest"]
    assert receive([]) == []


def test_what_was_received_is_the_callers(pairs: Pairs, receive: Receive) -> None:
    pairs[0][1].sendall(b"x")
    (received,) = receive(descriptors(pairs[:1]))
    assert isinstance(received, bytearray)
    received[0] = ord("y")
    received += b"z"
    assert received == b"yz"


def test_each_socket_is_sent_its_bytes(pairs: Pairs, send: Send) -> None:
    pairs[2][1].close()
    assert send([*descriptors(pairs[:4]), CLOSED], [b"one", b"three", b"x", b"", b"y"]) == [
        3,
        5,
        -errno.EPIPE,
        0,
        -errno.EBADF,
    ]
    assert [far.recv(10) for _, far in pairs[:2]] == [b"one", b"three"]
    assert send([], []) == []


def test_a_full_socket_takes_a_part_or_nothing(pairs: Pairs, send: Send) -> None:
    near, far = pairs[0]
    data = bytes(1 << 20)
    (taken,) = send([near.fileno()], [data])
    while taken > 0:
        (more,) = send([near.fileno()], [data])
        if more < 0:
            assert more == -errno.EAGAIN
            break
        taken += more
    far.setblocking(False)
    count = 0
    while count < taken:
        count += len(far.recv(1 << 20))
    assert count == taken


@pytest.mark.skipif(not IS_C, reason="nothing is compiled here: see `make compiled`")
def test_the_c_functions_check_their_arguments() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: receive_each((1,)),  # type: ignore[arg-type]
        lambda: receive_each([None]),  # type: ignore[list-item]
        lambda: send_each([1], [bytearray(1)]),  # type: ignore[list-item]
        lambda: send_each([1], []),
        lambda: send_each(["1"], [b""]),  # type: ignore[list-item]
        lambda: send_each([1]),  # type: ignore[call-arg]
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    for number in (-1, 2**31, 2**64):
        with pytest.raises((ValueError, OverflowError)):
            receive_each([number])


@pytest.mark.skipif(not IS_C, reason="nothing is compiled here: see `make compiled`")
def test_both_receive_as_much_at_once() -> None:
    from barnabas.broker.network.batches import _sockets

    assert _sockets.EACH_BYTES == many_sockets.EACH_BYTES
