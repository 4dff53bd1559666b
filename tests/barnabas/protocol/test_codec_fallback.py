"""protocol/_codec.c and its Python fallback (plans.py, codec.py) accept, produce and refuse the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.protocol import codec, plans
from barnabas.protocol.fields import Field
from barnabas.protocol.messages.k00_produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.schema import Message
from tests.barnabas.protocol.test_malformed import mutate
from tests.support import messages as facts

CLASSES = facts.all_classes()
MUTATIONS = 20
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 128, 2**15, 2**31, 2**63, 1.5, "", "é", "\ud800", "x" * 40_000, b"", b"ab", bytes(16), bytes(17)),
    *(bytearray(16), memoryview(b"abc"), [], [None], ["a"], [b"a" * 16], [1], [2**40], (1, 2), {}, object()),
)

if plans._Plan is None:
    pytest.skip("nothing is compiled here: see `make compiled`", allow_module_level=True)


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, or the kind of error and its text."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error)


def joined(encoded: Any) -> Any:
    """The bytes between records, and the records."""
    pieces, marks = encoded
    parts: list[Any] = [b""]
    for index, piece in enumerate(pieces):
        if index in marks:
            parts += [piece, b""]
        else:
            parts[-1] += piece
    return parts


def codecs(cls: type[Message], version: int) -> tuple[Any, Any, Any, Any]:
    flexible = version >= cls.FLEXIBLE_FROM
    return (
        plans.make_decoder(cls, version, flexible),
        plans.make_python_decoder(cls, version, flexible),
        plans.make_encoder(cls, version, flexible),
        codec.compile_encoder(cls, version, flexible),
    )


@pytest.mark.parametrize("cls", CLASSES, ids=lambda found: found.__name__)
def test_both_decode_and_refuse_the_same_bytes(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in facts.versions(cls):
        decode, decode_fallback, encode, encode_fallback = codecs(cls, version)
        for message in facts.samples(cls, version, 3):
            wire = message.encode(version)
            assert decode(wire, 0) == decode_fallback(wire, 0) == (message, len(wire))
            assert joined(encode(message)) == joined(encode_fallback(message))
        for _ in range(MUTATIONS):
            damaged = memoryview(mutate(rng, wire))
            assert outcome(decode, damaged, 0) == outcome(decode_fallback, damaged, 0)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda found: found.__name__)
def test_both_encode_and_refuse_the_same_messages(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    for version in facts.versions(cls):
        _, _, encode, encode_fallback = codecs(cls, version)
        for _ in range(MUTATIONS):
            message = rng.choice(facts.samples(cls, version, 2))
            target = rng.choice(structures(message))
            if target.FIELDS:
                setattr(target, rng.choice(target.FIELDS).name, rng.choice(ODD_VALUES))
            expected = outcome(lambda m, e=encode_fallback: joined(e(m)), message)
            assert outcome(lambda m, e=encode: joined(e(m)), message) == expected


@pytest.mark.parametrize("size", [1, 10_922, 10_923])
def test_both_read_text_of_another_character_set_alike(size: int) -> None:
    decode, decode_fallback, _, _ = codecs(HeartbeatRequest, 4)
    wire = HeartbeatRequest(group_id="x" * size, member_id="m").encode(4).replace(b"x", b"\xfc")
    assert outcome(decode, wire, 0) == outcome(decode_fallback, wire, 0)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda found: found.__name__)
def test_a_frame_is_what_the_encoder_writes_behind_a_header(cls: type[Message]) -> None:
    for version in facts.versions(cls):
        flexible = version >= cls.FLEXIBLE_FROM
        encode = plans.make_encoder(cls, version, flexible)
        frame = plans.framer_of(encode)
        assert frame is not None
        for message in facts.samples(cls, version, 3):
            pieces, marks = encode(message)
            written = frame(message, -7)
            if marks:
                assert written is None
            elif written is not None:
                body = b"\xff\xff\xff\xf9" + b"\0" * flexible + b"".join(pieces)
                assert written == len(body).to_bytes(4, "big") + body
            else:  # left to the fallback
                assert message.unknown_tagged_fields or any(s.unknown_tagged_fields for s in structures(message))


def test_what_is_unusual_has_no_frame() -> None:
    frame = plans.framer_of(plans.make_encoder(HeartbeatRequest, 4, True))
    assert frame is not None
    assert frame(PartitionProduceResponse(), 1) is None  # type: ignore[arg-type]
    assert frame(HeartbeatRequest(group_id=5), 1) is None  # type: ignore[arg-type]
    assert frame(HeartbeatRequest(unknown_tagged_fields=((1, b"x"),)), 1) is None
    assert frame(HeartbeatRequest(), 2**31) is None
    assert plans.framer_of(codec.compile_encoder(HeartbeatRequest, 4, True)) is None


def structures(message: Any) -> list[Any]:
    """A message and every structure in it."""
    found = [message]
    for field in message.FIELDS:
        value = getattr(message, field.name)
        for inner in value if isinstance(value, list) else [value]:
            if hasattr(inner, "FIELDS"):
                found += structures(inner)
    return found


@pytest.mark.parametrize("cls", CLASSES, ids=lambda found: found.__name__)
def test_constructors(cls: type[Message]) -> None:
    rng = random.Random(cls.__name__)
    cls()  # from now on its plan constructs it
    assert "_constructor" in vars(cls)
    for _ in range(MUTATIONS):
        given = {field.name: object() for field in cls.FIELDS if rng.random() < 0.5}
        expected = object.__new__(cls)
        cls.__init__(expected, **given)
        assert cls(**given) == expected
        if rng.random() < 0.2:
            assert cls(**given, unknown_tagged_fields=((1, b"x"),)).unknown_tagged_fields == ((1, b"x"),)
    with pytest.raises(TypeError, match="nothing_such"):
        cls(nothing_such=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        cls(1)  # type: ignore[misc]


def test_defaults_are_fresh() -> None:
    first, second = PartitionProduceResponse(), PartitionProduceResponse()
    assert first.current_leader is not second.current_leader
    assert first.record_errors is not second.record_errors


def test_a_derived_class_has_its_own_constructor() -> None:
    class Derived(HeartbeatRequest):
        def __init__(self) -> None:
            super().__init__(group_id="of the derived")

    HeartbeatRequest()
    assert Derived().group_id == "of the derived"


def test_fields_that_are_not_set_are_an_error_as_ever() -> None:
    _, _, encode, encode_fallback = codecs(HeartbeatRequest, 4)
    hollow = object.__new__(HeartbeatRequest)
    assert outcome(encode, hollow)[0] is outcome(encode_fallback, hollow)[0] is AttributeError


@pytest.mark.parametrize(("buffer", "position"), [(b"", 0), (b"abc", 4), (b"abc", -1), ("text", 0), (b"abc", "x")])
def test_no_place_to_read_from(buffer: Any, position: Any) -> None:
    decode, decode_fallback, _, _ = codecs(HeartbeatRequest, 4)
    assert outcome(decode, buffer, position)[0] is outcome(decode_fallback, buffer, position)[0]


def test_records_stay_where_they_are() -> None:
    decode, _, encode, _ = codecs(ProduceRequest, 13)
    wire = bytearray(ProduceRequest(topic_data=[]).encode(13))
    assert decode(memoryview(wire), 0)[0].topic_data == []
    records = memoryview(bytearray(b"r" * 5000))
    message = facts.samples(ProduceRequest, 13, 1)[-1]
    message.topic_data = message.topic_data[:1] or message.topic_data
    for topic in message.topic_data:
        topic.partition_data = [PartitionProduceData(index=1, records=records), PartitionProduceData(index=2)]
    pieces, marks = encode(message)
    assert [pieces[mark] is records for mark in marks] == [True] * len(message.topic_data)


@pytest.mark.parametrize(
    "arguments",
    [
        (object, True, (), None, None, 0),  # its fields are no slots
        (PartitionProduceData, True, (("nothing_such", 2, 1, 0, 0, 0),), None, None, 0),
        (PartitionProduceData, True, (("index", 99, 1, 0, 0, 0),), None, None, 0),
        (PartitionProduceData, True, (("index", plans.KINDS["struct"], 1, 0, 0, 0),), None, None, 0),
        (PartitionProduceData, True, (("index", 2),), None, None, 0),
        (PartitionProduceData, True, [], None, None, 0),
    ],
)
def test_plans_that_make_no_sense_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        plans._Plan(*arguments)


def test_a_part_of_a_message_is_no_message() -> None:
    part = plans._Plan(PartitionProduceData, True, (), None, None, 0)
    with pytest.raises(TypeError, match="whole message"):
        part.decode(b"", 0)
    with pytest.raises(TypeError, match="whole message"):
        part.encode(PartitionProduceData())


def test_every_kind_has_a_number() -> None:
    kinds = {field.kind for cls in CLASSES for each in structures(cls()) for field in each.FIELDS}
    assert kinds <= plans.KINDS.keys()
    assert all(isinstance(field, Field) for field in ProduceRequest.FIELDS)
