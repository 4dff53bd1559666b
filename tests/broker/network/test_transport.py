"""Sending buffers and regions of files through a socket that takes little at a time."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.network import transport as transport_module
from barnabas.broker.network.transport import TURN_BYTES, PlainTransport
from tests.support.broker.network import Region


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    yield near, far
    near.close()
    far.close()


def send_all(near: socket.socket, far: socket.socket, parts: list[Any]) -> bytes:
    """Send until all is sent, reading in between."""
    transport = PlainTransport(near)
    received = bytearray()
    rest: list[Any] | None = parts
    while rest is not None:
        rest = transport.send(rest)
        try:
            while chunk := far.recv(65536):
                received += chunk
        except BlockingIOError:
            pass
    return bytes(received)


@pytest.mark.parametrize("sizes", [[5], [0], [100_000], [1, 2, 3], [0, 9_000, 0, 30_000, 1], [10] * 700])
def test_buffers_arrive_whole(pair: tuple[socket.socket, socket.socket], sizes: list[int]) -> None:
    random_ = random.Random(1)
    parts = [random_.randbytes(size) for size in sizes]
    assert send_all(*pair, list(parts)) == b"".join(parts)
    kinds: list[Any] = [memoryview(part) if i % 2 else bytearray(part) for i, part in enumerate(parts)]
    assert send_all(*pair, kinds) == b"".join(parts)


def test_regions_of_files_arrive_between_buffers(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    content = random.Random(2).randbytes(300_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    parts = [b"head", Region(fd, 10, 200_000), b"middle" * 2_000, Region(fd, 0, 1), Region(fd, 5, 0), b"tail"]
    expected = b"head" + content[10:200_010] + b"middle" * 2_000 + content[:1] + b"tail"
    assert send_all(*pair, list(parts)) == expected
    assert send_all(*pair, [Region(fd, 299_999, 1)]) == content[-1:]
    os.close(fd)


def test_a_file_that_ends_too_early_is_an_error(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"short")
    fd = os.open(path, os.O_RDONLY)
    for size in (100, 100_000):  # one is copied, one is sent by the kernel
        with pytest.raises(OSError, match="the file ends"):
            send_all(*pair, [b"x", Region(fd, 0, size)])
    os.close(fd)


def test_small_regions_are_sent_with_their_buffers(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    content = random.Random(3).randbytes(20_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    parts = [b"head", Region(fd, 10, 9_000), b"middle", Region(fd, 10_000, 9_000), b"tail"]
    expected = b"head" + content[10:9_010] + b"middle" + content[10_000:19_000] + b"tail"
    assert send_all(*pair, list(parts)) == expected
    os.close(fd)


def test_a_large_region_is_sent_over_several_turns(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast its reader is. The rest is sent in the next turn; no edge reports it."""

    def all_asked_is_sent(_sock: socket.socket, parts: list[Any], most: int) -> tuple[int, int, bool, int]:
        asked.append((len(parts), parts[-1].position, parts[-1].size))
        return (len(parts), 0, False, 0) if parts[-1].size <= most else (len(parts) - 1, most, False, 0)

    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(transport_module, "send_parts", all_asked_is_sent)
    transport = PlainTransport(pair[0])
    rest: list[Any] | None = [b"head", Region(0, 0, 3 * TURN_BYTES)]
    while rest is not None:
        rest = transport.send(rest)
        assert transport.may_go_on == (rest is not None)
    assert asked == [(2, 0, 3 * TURN_BYTES), (1, TURN_BYTES, 2 * TURN_BYTES), (1, 2 * TURN_BYTES, TURN_BYTES)]


def test_a_full_socket_is_resumed_by_an_edge_only(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(3 * TURN_BYTES))
    with path.open("rb") as file:
        transport = PlainTransport(pair[0])
        assert transport.send([b"head", Region(file.fileno(), 0, 3 * TURN_BYTES)]) is not None
        assert not transport.may_go_on
