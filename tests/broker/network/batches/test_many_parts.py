"""The C function and its fallback send the parts of a response alike."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.network.batches.many_parts import python_send_parts, send_parts
from tests.support.broker.network import Region

Send = Callable[[socket.socket, list[Any], int], tuple[int, int, bool]]
IS_C = send_parts is not python_send_parts
SEND = {"python": python_send_parts} | ({"C": send_parts} if IS_C else {})
CONTENT = random.Random(5).randbytes(300_000)
MOST = 1 << 30


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
        done, sent, is_full = send(pair[0], rest, most)
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
    assert send(pair[0], [], MOST) == (0, 0, False)
    assert send(pair[0], [b"", Region(file, 0, 0), b""], 0) == (3, 0, False)
    assert send(pair[0], [b"a", Region(file, 0, 10), b"bc"], 1) == (1, 0, False)
    assert send(pair[0], [Region(file, 0, 10), b"bc"], 4) == (0, 4, False)
    assert received(pair[1]) == b"a" + CONTENT[:4]
    done, sent, is_full = send(pair[0], [b"head", Region(file, 100, 200_000), b"tail"], MOST)
    assert (done, is_full) == (1, True)
    assert received(pair[1]) == b"head" + CONTENT[100 : 100 + sent]


def test_many_parts_of_one_call(pair: tuple[socket.socket, socket.socket], file: int, send: Send) -> None:
    pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    parts = [part for index in range(40) for part in (b"%02d" % index, Region(file, index, 1))]
    assert send(pair[0], parts, MOST) == (80, 0, False)
    assert received(pair[1]) == b"".join(map(bytes_of, parts))


def test_errors_are_raised(pair: tuple[socket.socket, socket.socket], file: int, send: Send) -> None:
    with pytest.raises(OSError, match="the file ends"):
        send(pair[0], [Region(file, len(CONTENT) - 1, 2)], MOST)
    with pytest.raises(OSError, match="Bad file descriptor"):
        send(pair[0], [Region(1_000_000, 0, 2)], MOST)
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        send(pair[0], [b"x"], MOST)
    with pytest.raises(BrokenPipeError):
        send(pair[0], [Region(file, 0, 2)], MOST)
    pair[0].close()
    with pytest.raises((OSError, ValueError)):
        send(pair[0], [b"x"], MOST)


@pytest.mark.skipif(not IS_C, reason="there is no C function")
@pytest.mark.parametrize("arguments", [(), (1, [b""]), (1, (b"",), 1), (1, [1], 1), (1, [b"x"], "1"), ("x", [b"x"], 1)])
def test_the_function_in_c_refuses_what_it_cannot_send(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((AttributeError, TypeError, OSError)):
        send_parts(*arguments)


def test_buffers_are_let_go(pair: tuple[socket.socket, socket.socket], send: Send) -> None:
    data = bytearray(10)
    assert send(pair[0], [data, memoryview(data)], MOST) == (2, 0, False)
    data.clear()  # an exported buffer cannot be resized
