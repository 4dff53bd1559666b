"""The walk agrees with full iteration on good batches and refuses damaged ones.

`RUNS`: this source, interpreted, and the mypyc extension if there is one; both must behave alike. `SUMMARIES`: the
Python function and the C extension if there is one.
"""

from __future__ import annotations

import importlib.util
import random
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import barnabas
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records import walk as imported
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    SimpleRecord,
    build_batch,
    iter_records,
    read_header,
    records_payload,
)
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.varint import write_varint, write_varlong


def interpreted() -> ModuleType:
    """Load the module from its source, even if it was compiled."""
    # Why not imported.__file__: mypyc names a directory that does not exist.
    source = Path(barnabas.__file__).with_name("protocol") / "records" / "walk.py"
    spec = importlib.util.spec_from_file_location("walk_interpreted", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written_in_c() -> dict[str, Callable[..., tuple[int, int, bool, int]]]:
    """Return the C extension; nothing if it was not built."""
    try:
        from barnabas.protocol.records._walk import summarize
    except ImportError:
        assert imported.__file__.endswith(".py"), "it is compiled with the rest"
        return {}
    return {"C": summarize}


RUNS = [interpreted()] if imported.__file__.endswith(".py") else [interpreted(), imported]

SUMMARIES = {Path(str(run.__file__)).suffix: run.summarize for run in RUNS} | written_in_c()


@pytest.fixture(params=SUMMARIES)
def summarize(request: pytest.FixtureRequest) -> Callable[..., tuple[int, int, bool, int]]:
    """Each implementation of `summarize`."""
    return SUMMARIES[request.param]


@pytest.fixture(params=RUNS, ids=lambda module: Path(module.__file__).suffix)
def walk(request: pytest.FixtureRequest) -> ModuleType:
    """Each build of the module."""
    return request.param


def made(count: int, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    return build_batch(
        [
            SimpleRecord(
                1000 + chance.randint(-50, 300),
                chance.choice([None, b"", b"key", b"k" * 100]),
                chance.choice([None, b"", b"v" * chance.randint(0, 20_000)]),
                (("h", None), ("name", b"value" * 30))[: chance.randint(0, 2)],
            )
            for _ in range(count)
        ]
    )


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300])
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_good_batches_pass(summarize: Callable[..., object], count: int, buffer: Callable[[bytes], object]) -> None:
    batch = made(count)
    header = read_header(batch)
    records = list(iter_records(batch))
    assert summarize(buffer(bytes(records_payload(batch, 0, header))), count) == (
        min(r.timestamp for r in records) - header.base_timestamp,
        max(r.timestamp for r in records) - header.base_timestamp,
        True,
        sum(r.key is None for r in records),
    )


def test_a_walk_is_a_summary() -> None:
    summary = imported.walk_records(build_batch([SimpleRecord(5, b"k", b"v"), SimpleRecord(3, b"k", b"v")])[61:], 2)
    assert (summary.timestamp_delta_min, summary.timestamp_delta_max) == (-2, 0)
    assert (summary.offsets_are_contiguous, summary.keyless) == (True, 0)


def outcome(job: Callable[[], object]) -> object:
    """Return the result of `summarize`, or the text of its error."""
    try:
        return job()
    except MalformedMessageError as error:
        return str(error)


varints = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**31])
pieces = st.binary(max_size=12) | varints.map(lambda value: varlong(value))


def varlong(value: int) -> bytes:
    data = bytearray()
    write_varlong(data, value)
    return bytes(data)


@st.composite
def almost_records(draw: st.DrawFn) -> tuple[bytes, int]:
    """Draw records that may have a wrong field, length or count."""
    payload = bytearray()
    count = draw(st.integers(0, 4))
    for index in range(count):
        key, value = (draw(st.none() | st.binary(max_size=5)) for _ in range(2))
        body = bytearray(b"\0" + varlong(draw(varints)) + varlong(draw(st.just(index) | varints)))
        for field in (key, value):
            body += varlong(-1 if field is None else len(field)) + (field or b"")
        headers = draw(st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=2))
        body += varlong(draw(st.just(len(headers)) | varints))
        for name, content in headers:
            body += varlong(len(name)) + name + varlong(-1 if content is None else len(content)) + (content or b"")
        if draw(st.integers(0, 9)) == 0:
            at = draw(st.integers(0, len(body)))
            body[at : at + draw(st.integers(0, 2))] = draw(pieces)
        payload += varlong(draw(st.just(len(body)) if draw(st.integers(0, 9)) else varints)) + body
    return bytes(payload), draw(st.just(count) | st.integers(-2, 6))


@pytest.mark.skipif(len(SUMMARIES) == 1, reason="nothing is compiled here: see `make compiled`")
@settings(max_examples=300, deadline=None)
@given(almost_records() | st.tuples(st.binary(max_size=40), st.integers(-1, 4)))
@example((b"", 0))
@example((b"", 2**40))
def test_c_and_python_agree(made_up: tuple[bytes, int]) -> None:
    payload, count = made_up
    first, *others = [outcome(lambda each=each: each(payload, count)) for each in SUMMARIES.values()]  # type: ignore[misc]
    assert all(other == first for other in others), (first, others)


def test_large_payloads_are_walked_like_small_ones(summarize: Callable[..., object]) -> None:
    """In C without the interpreter's lock."""
    batch = build_batch([SimpleRecord(5, b"k", b"v" * 1000)] * 400)
    assert summarize(memoryview(batch)[HEADER_SIZE:], 400) == (0, 0, True, False)
    with pytest.raises(MalformedMessageError):
        summarize(memoryview(batch)[HEADER_SIZE:-1], 400)


@pytest.mark.parametrize("wrong", [-1, 0, 9, 11, 2**31 - 1])
def test_wrong_counts_are_found(walk: ModuleType, wrong: int) -> None:
    payload = made(10)[HEADER_SIZE:]
    with pytest.raises(MalformedMessageError):
        walk.summarize(payload, wrong)


def test_a_cut_payload_is_found(summarize: Callable[..., object]) -> None:
    payload = made(5, seed=3)[HEADER_SIZE:]
    for cut in range(0, len(payload), 7):
        with pytest.raises(MalformedMessageError):
            summarize(payload[:cut], 5)


def test_the_walk_refuses_exactly_what_iteration_refuses(walk: ModuleType) -> None:
    batch = build_batch([SimpleRecord(5, b"key", b"value", (("h", b"x"),)), SimpleRecord(6, None, b"y" * 70)])
    for index in range(HEADER_SIZE, len(batch)):
        for value in range(256):
            damaged = bytearray(batch)
            damaged[index] = value
            payload = bytes(damaged[HEADER_SIZE:])
            expected = refused(lambda data=damaged: list(iter_records(data)))
            for look in (walk.summarize, *SUMMARIES.values()):
                assert refused(lambda data=payload, look=look: look(data, 2)) == expected, (index, value)


def refused(job) -> bool:
    try:
        job()
    except MalformedMessageError:
        return True
    return False


@pytest.mark.parametrize("seed", range(20))
def test_random_damage(walk: ModuleType, seed: int) -> None:
    """Several bytes at once, cut and doubled: iteration reads each payload that the walk accepts, with equal result."""
    chance = random.Random(seed)
    for _ in range(200):
        count = chance.randint(1, 6)
        payload = bytearray(made_small(chance, count))
        for _ in range(chance.randint(1, 4)):
            damage(chance, payload)
        batch = resized(build_batch([SimpleRecord(5, b"", b"")]), bytes(payload), count)
        expected = None
        if not refused(lambda data=batch: list(iter_records(data))):
            records = list(iter_records(batch))
            deltas = [record.timestamp - 5 for record in records]
            is_contiguous = [record.offset for record in records] == list(range(count))
            expected = min(deltas), max(deltas), is_contiguous, sum(record.key is None for record in records)
        try:
            found = walk.summarize(bytes(payload), count)
        except MalformedMessageError:
            found = None
        assert found == expected


def made_small(chance: random.Random, count: int) -> bytes:
    records = [
        SimpleRecord(5 + chance.randint(0, 200), chance.choice([None, b"k"]), chance.randbytes(chance.randint(0, 90)))
        for _ in range(count)
    ]
    return build_batch([SimpleRecord(5, b"", b""), *records][:count])[HEADER_SIZE:]


def damage(chance: random.Random, payload: bytearray) -> None:
    index = chance.randrange(len(payload)) if payload else 0
    match chance.randrange(4):
        case 0 if payload:
            payload[index] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        case 1:
            payload[index:index] = b"\xff" * chance.randint(1, 9)
        case 2:
            del payload[index : index + chance.randint(1, 3)]
        case _:
            payload += payload[index:]


def resized(batch: bytes, payload: bytes, count: int) -> bytes:
    """Return the header of `batch` before other records, with a wrong CRC."""
    header = bytearray(batch[:HEADER_SIZE])
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12 + len(payload))
    struct.pack_into(">i", header, 57, count)
    return bytes(header) + payload


@pytest.mark.parametrize("delta", [0, -1, 63, -64, 64, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)])
def test_every_timestamp_delta_is_read(summarize: Callable[..., tuple[int, ...]], delta: int) -> None:
    body = bytearray(1)
    write_varlong(body, delta)
    body += b"\x00\x01\x01\x00"
    payload = bytearray()
    write_varint(payload, len(body))
    assert summarize(bytes(payload + body), 1)[:2] == (delta, delta)


@pytest.mark.parametrize(
    "raw", [b"\xff" * 9 + b"\x02", b"\xff" * 10, b"\x80" * 12 + b"\x00", b"\xff" * 9], ids=lambda raw: raw.hex()
)
def test_varints_beyond_their_type_are_refused(summarize: Callable[..., object], raw: bytes) -> None:
    body = b"\x00" + raw + b"\x00\x01\x01\x00"
    payload = bytes([len(body) << 1]) + body
    with pytest.raises(MalformedMessageError):
        summarize(payload, 1)


def test_gaps_in_offsets_are_found(summarize: Callable[..., tuple[int, int, bool, int]]) -> None:
    batch = bytearray(build_batch([SimpleRecord(5, b"k", b"v")] * 2))
    second = HEADER_SIZE + (len(batch) - HEADER_SIZE) // 2
    batch[second + 3] = 2 << 1  # the second record's offset delta
    assert summarize(bytes(batch[HEADER_SIZE:]), 2) == (0, 0, False, False)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_batches_are_walked(kind: CompressionType) -> None:
    batch = build_batch([SimpleRecord(5, None, b"v" * 100)] * 40, compression=kind)
    assert imported.walk_records(records_payload(batch, 0, read_header(batch)), 40).offsets_are_contiguous


def test_invalid_utf8_in_header_keys_is_replaced() -> None:
    batch = bytearray(build_batch([SimpleRecord(5, None, b"", (("h", b"x"),))]))
    batch[batch.rindex(b"h")] = 0xFF
    assert [record.headers for record in iter_records(batch)] == [(("\ufffd", b"x"),)]
