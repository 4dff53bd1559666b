"""The C function and its fallback send the parts of a response alike."""

from __future__ import annotations

import errno
import os
import random
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.network.batches.many_parts import (
    OUTPUTS,
    failure,
    python_send_parts,
    python_wait_and_send,
    send_parts,
    wait_and_send,
)
from barnabas.broker.network.transport import rest_of
from tests.support.broker.network import Region

Send = Callable[[socket.socket, list[Any], int], tuple[int, int, bool, int]]
IS_C = send_parts is not python_send_parts
SEND = {"python": python_send_parts} | ({"C": send_parts} if IS_C else {})
CONTENT = random.Random(5).randbytes(300_000)
MOST = 1 << 30
in_c = pytest.mark.skipif(not IS_C, reason="nothing is compiled here: see `make compiled`")


@pytest.fixture(params=SEND)
def send(request: pytest.FixtureRequest) -> Any:
    return SEND[request.param]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A near end that does not block and takes little, and a far one."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    yield near, far
    near.close()
    far.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def received(far: socket.socket) -> bytes:
    pieces = []
    try:
        while piece := far.recv(1 << 20):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


def bytes_of(part: Any) -> bytes:
    return CONTENT[part.position : part.position + part.size] if isinstance(part, Region) else bytes(part)


def some_parts(rng: random.Random, file: int) -> list[Any]:
    parts: list[Any] = []
    for _ in range(rng.randrange(60)):
        size = rng.choice([0, 0, 1, 3, 100, 5_000, 40_000])
        position = rng.randrange(len(CONTENT) - size)
        data = CONTENT[position : position + size]
        kinds = [data, bytearray(data), memoryview(data), Region(file, position, size)]
        parts.append(rng.choice(kinds))
    return parts


@pytest.mark.parametrize("seed", range(30))
def test_all_parts_arrive_in_order(pair: tuple[socket.socket, socket.socket], file: int, send: Send, seed: int) -> None:
    rng = random.Random(seed)
    parts = some_parts(rng, file)
    most = rng.choice([MOST, 10_000, 1])
    skipped = 0
    arrived = b""
    done, is_full, turns = 0, False, 0
    while parts or turns == 0:
        head = bytes_of(parts[0])[skipped:] if parts else b""
        rest = [memoryview(head), *parts[1:]] if skipped else parts
        done, sent, is_full, error = send(pair[0], rest, most)
        assert error == 0
        arrived += received(pair[1])
        skipped = sent + (skipped if done == 0 else 0)
        whole, parts = parts[:done], parts[done:]
        turns += 1
        if turns == 1:
            expected = b"".join(map(bytes_of, [*whole, *parts]))
        assert is_full or not parts or most != MOST
        assert 0 <= skipped < len(bytes_of(parts[0])) if parts else sent == 0
    assert arrived == expected


def test_it_stops_after_much_and_at_a_full_socket(
    pair: tuple[socket.socket, socket.socket], file: int, send: Send
) -> None:
    assert send(pair[0], [], MOST) == (0, 0, False, 0)
    assert send(pair[0], [b"", Region(file, 0, 0), b""], 0) == (3, 0, False, 0)
    assert send(pair[0], [b"a", Region(file, 0, 10), b"bc"], 1) == (1, 0, False, 0)
    assert send(pair[0], [Region(file, 0, 10), b"bc"], 4) == (0, 4, False, 0)
    assert received(pair[1]) == b"a" + CONTENT[:4]
    done, sent, is_full, error = send(pair[0], [b"head", Region(file, 100, 200_000), b"tail"], MOST)
    assert (done, is_full, error) == (1, True, 0)
    assert received(pair[1]) == b"head" + CONTENT[100 : 100 + sent]


def test_many_parts_of_one_call(pair: tuple[socket.socket, socket.socket], file: int, send: Send) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    parts = [part for index in range(40) for part in (b"%02d" % index, Region(file, index, 1))]
    assert send(pair[0], parts, MOST) == (80, 0, False, 0)
    assert received(pair[1]) == b"".join(map(bytes_of, parts))


def test_errors_are_returned_with_what_was_sent(
    pair: tuple[socket.socket, socket.socket], file: int, send: Send
) -> None:
    near, far = pair
    assert send(near, [b"x", Region(file, len(CONTENT) - 1, 2)], MOST) == (1, 1, False, errno.ENODATA)
    assert received(far) == b"x" + CONTENT[-1:]
    assert send(near, [Region(1_000_000, 0, 2)], MOST) == (0, 0, False, errno.EBADF)
    far.close()
    assert send(near, [b"x"], MOST) == (0, 0, False, errno.EPIPE)
    assert send(near, [Region(file, 0, 2)], MOST) == (0, 0, False, errno.EPIPE)
    near.close()
    with pytest.raises((OSError, ValueError)):
        raise failure(send(near, [b"x"], MOST)[3])


def test_an_error_has_its_exception() -> None:
    assert type(failure(errno.EPIPE)) is BrokenPipeError
    assert str(failure(errno.EPIPE)) == "[Errno 32] Broken pipe"
    assert str(failure(errno.ENODATA)) == "the file ends before the slice to be sent"


@in_c
def test_both_have_the_same_limit() -> None:
    from barnabas.broker.network.batches import _sockets

    assert _sockets.OUTPUTS == OUTPUTS


@in_c
@pytest.mark.parametrize("arguments", [(), (1, [b""]), (1, (b"",), 1), (1, [1], 1), (1, [b"x"], "1"), ("x", [b"x"], 1)])
def test_the_function_in_c_refuses_what_it_cannot_send(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((AttributeError, TypeError, OSError)):
        send_parts(*arguments)


def test_buffers_are_let_go(pair: tuple[socket.socket, socket.socket], send: Send) -> None:
    data = bytearray(10)
    assert send(pair[0], [data, memoryview(data)], MOST) == (2, 0, False, 0)
    data.clear()  # an exported buffer cannot be resized


# Sending while waiting

Selector = select.epoll
EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
HOUR_NS = 3600 * 10**9


@pytest.fixture
def selector(pair: tuple[socket.socket, socket.socket]) -> Iterator[Selector]:
    """It has the near end, whose first edge is taken."""
    with select.epoll() as epoll:
        epoll.register(pair[0], EDGES)
        assert epoll.poll(0) == [(pair[0].fileno(), select.EPOLLOUT)]
        yield epoll


def filled(near: socket.socket) -> int:
    """Fill a socket; return how many bytes it took."""
    sent = 0
    try:
        while True:
            sent += near.send(bytes(1000))
    except BlockingIOError:
        return sent


def test_in_python_it_only_waits(pair: tuple[socket.socket, socket.socket], selector: Selector) -> None:
    near, far = pair
    arguments = ([near.fileno()], [[b"x"]], MOST)
    assert python_wait_and_send(selector, 0, *arguments) == ([], [(0, 0, True, 0)], 0)
    far.send(b"request")
    events = [(near.fileno(), select.EPOLLIN | select.EPOLLOUT)]
    assert python_wait_and_send(selector, HOUR_NS, *arguments) == (events, [(0, 0, True, 0)], 0)


Waited = tuple[list[tuple[int, int]], int, int, bool, int]


def waited(selector: Selector, timeout_ns: int, near: socket.socket, parts: list[Any], most: int = MOST) -> Waited:
    """Send to one socket while waiting."""
    events, ((done, sent, is_full, error),), _ = wait_and_send(selector, timeout_ns, [near.fileno()], [parts], most)
    return events, done, sent, is_full, error


@in_c
def test_it_sends_when_the_socket_has_space(
    pair: tuple[socket.socket, socket.socket], selector: Selector, file: int
) -> None:
    near, far = pair
    taken = filled(near)
    parts = [b"head", Region(file, 7, 200_000), b"tail"]
    assert waited(selector, 0, near, parts) == ([], 0, 0, True, 0)
    assert len(received(far)) == taken
    events, ((done, sent, is_full, _),), sending_ns = wait_and_send(selector, 0, [near.fileno()], [parts], MOST)
    assert (events, done, is_full) == ([], 1, True)
    assert sending_ns > 0
    assert received(far) == b"head" + CONTENT[7 : 7 + sent]


@in_c
def test_it_ends_when_most_parts_or_bytes_are_sent(
    pair: tuple[socket.socket, socket.socket], selector: Selector, file: int
) -> None:
    near, far = pair
    taken = filled(near)
    assert len(received(far)) == taken
    assert waited(selector, HOUR_NS, near, [b"a", Region(file, 0, 100)], 50) == ([], 1, 49, False, 0)
    assert received(far) == b"a" + CONTENT[:49]
    taken = filled(near)
    assert len(received(far)) == taken
    parts = [b"%d" % (index % 10) for index in range(20)]
    assert waited(selector, HOUR_NS, near, parts) == ([], 16, 0, False, 0)
    assert received(far) == b"0123456789012345"


@in_c
def test_other_events_end_it(pair: tuple[socket.socket, socket.socket], selector: Selector) -> None:
    near, far = pair
    wake = os.eventfd(0, os.EFD_NONBLOCK)
    selector.register(wake, select.EPOLLIN | select.EPOLLET)
    filled(near)
    os.eventfd_write(wake, 1)
    woken = (wake, select.EPOLLIN)
    assert waited(selector, HOUR_NS, near, [b"x"]) == ([woken], 0, 0, True, 0)
    received(far)
    os.eventfd_write(wake, 1)  # its own event is there, too
    assert waited(selector, HOUR_NS, near, [b"x"]) == ([woken], 1, 0, False, 0)
    assert received(far) == b"x"
    os.close(wake)
    filled(near)
    far.send(b"request")
    both = (near.fileno(), select.EPOLLIN | select.EPOLLOUT)
    received(far)
    assert waited(selector, HOUR_NS, near, [b"x"]) == ([both], 0, 0, True, 0)
    far.close()
    ((fd, event),), *rest = waited(selector, HOUR_NS, near, [b"x"])
    assert fd == near.fileno()
    assert event & select.EPOLLHUP
    assert rest == [0, 0, True, 0]


@in_c
def test_all_arrives_at_readers_of_their_own_speed(selector: Selector, file: int) -> None:
    pairs = [socket.socketpair() for _ in range(OUTPUTS)]
    parts = [part for index in range(8) for part in (bytearray(b"head"), Region(file, index, 60_000))]
    expected = b"".join(map(bytes_of, parts))
    arrived = [bytearray() for _ in pairs]
    skipped = []

    def read(index: int) -> None:
        while len(arrived[index]) < skipped[index] + len(expected):
            arrived[index].extend(pairs[index][1].recv(1_000 * (index + 1)))

    for near, _ in pairs:
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        selector.register(near, EDGES)
        skipped.append(filled(near))
    readers = [threading.Thread(target=read, args=(index,)) for index in range(OUTPUTS)]
    for reader in readers:
        reader.start()
    rest = {near.fileno(): list(parts) for near, _ in pairs}
    while rest:
        events, progress, _ = wait_and_send(selector, HOUR_NS, list(rest), list(rest.values()), MOST)
        assert all(fd not in rest and event == select.EPOLLOUT for fd, event in events), "they have nothing to send"
        assert events or not all(is_full for _, _, is_full, _ in progress)
        for fd, (done, sent, _, error) in zip(list(rest), progress, strict=True):
            assert error == 0
            rest[fd] = rest[fd][done:]
            if not rest[fd]:
                del rest[fd]
            elif sent:
                rest[fd][0] = rest_of(rest[fd][0], sent)
    for (near, far), reader, bytes_, skip in zip(pairs, readers, arrived, skipped, strict=True):
        reader.join()
        assert bytes_[skip:] == expected
        near.close()
        far.close()


@in_c
def test_an_error_is_its_own(pair: tuple[socket.socket, socket.socket], selector: Selector, file: int) -> None:
    near, far = pair
    taken = filled(near)
    assert len(received(far)) == taken
    end = Region(file, len(CONTENT), 2)
    assert waited(selector, HOUR_NS, near, [end]) == ([], 0, 0, False, errno.ENODATA)
    fd = near.fileno()
    for arguments in [
        (),
        (selector, 0, [fd], [], 1),
        (selector, 0, [fd], [()], 1),
        (selector, 0, [fd], [[1]], 1),
        (selector, 0, ["fd"], [[b"x"]], 1),
        (selector, 0, [fd], [[b"x", 1]], 1),
        (selector, "0", [fd], [[b"x"]], 1),
        (selector, 0, [fd] * (OUTPUTS + 1), [[b"x"]] * (OUTPUTS + 1), 1),
    ]:
        with pytest.raises((AttributeError, TypeError)):
            wait_and_send(*arguments)
    selector.close()
    with pytest.raises((OSError, ValueError)):
        wait_and_send(selector, 0, [fd], [[b"x"]], MOST)
