"""The frames are reproducible, of every kind and API, and never delete protected data by Kafka's own rules."""

from __future__ import annotations

import struct

from barnabas.protocol.api_keys import ROWS, ApiKey
from tests.fuzz.hostile import PERMITTED, Frame, Frames, Protected

PROTECTED = Protected(("treasure-a",), (b"T" * 16,), ("treasure-g",), (0, 1, 2), "cluster")


def frames(count: int, seed: int = 7) -> list[Frame]:
    source = Frames(seed, PROTECTED)
    return [source.next() for _ in range(count)]


def test_a_seed_determines_the_frames() -> None:
    assert frames(200) == frames(200)
    assert frames(200) != frames(200, seed=8)


def test_every_api_is_sent() -> None:
    sent = {frame.what.split(" v")[0] for frame in frames(4_000)}
    assert {key.name for key in ROWS} <= sent


def test_permitted_requests_never_contain_protected_names() -> None:
    hurt = [
        frame.what
        for frame in frames(4_000)
        if struct.unpack_from(">h", frame.data, 4)[0] in PERMITTED and _names_something_protected(frame.data)
    ]
    assert hurt == []


def test_other_requests_contain_protected_names() -> None:
    named = {struct.unpack_from(">h", frame.data, 4)[0] for frame in frames(4_000) if b"treasure" in frame.data}
    assert {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.WRITE_TXN_MARKERS} <= named


def _names_something_protected(data: bytes) -> bool:
    return b"treasure" in data or b"T" * 16 in data
