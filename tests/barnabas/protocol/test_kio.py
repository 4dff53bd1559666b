"""Our codec against kio's: an independent implementation with a class per message and version.

For each message and version that both have: kio reads our bytes to the very values that we wrote, and writes those
values as the very bytes that we wrote.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import uuid
from typing import Any

import pytest
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from barnabas.protocol.fields import Field
from barnabas.protocol.schema import Message, Request, Response
from tests.support import messages as facts

SAMPLES = 5
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)

# The requests that 4.0 removed, what only 4.3 has, and the records of the logs are not in kio 0.6.5.
PAIRS_MIN = 621


def kind_of(message_class: type[Message]) -> EntityType:
    """Where kio files a message."""
    if issubclass(message_class, Request):
        return EntityType.request
    return EntityType.response if issubclass(message_class, Response) else EntityType.data


def kio_name(message_class: type[Message]) -> str:
    """kio's name of a message: the file it was generated from."""
    name = message_class.__name__ if message_class.API_KEY < 0 else message_class.NAME
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def supported() -> list[tuple[type[Message], int]]:
    """The messages and versions that both sides have."""
    found = []
    for message_class in facts.all_classes():
        known = schema_name_map.get(kio_name(message_class), {})
        kind = kind_of(message_class)
        found += [
            (message_class, version) for version in facts.versions(message_class) if kind in known.get(version, {})
        ]
    return found


PAIRS = supported()


def plain(value: Any) -> Any:
    """A value of kio as we hold it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    return value


def assert_same(field: Field, ours: Any, theirs: Any) -> None:
    """Compare the values of a field."""
    if field.kind == "array" and ours is not None:
        assert len(ours) == len(theirs), field.name
        for mine, other in zip(ours, theirs, strict=True):
            if isinstance(field.element, str):
                assert mine == (bytes(16) if other is None else plain(other)), field.name
            else:
                assert_same_struct(mine, other)
    elif field.kind == "struct" and ours is not None:
        assert_same_struct(ours, theirs)
    elif theirs is None and field.kind in ("uuid", "int64"):
        # kio reads the zero uuid as None, and -1 as None where a time may be missing.
        assert ours == (bytes(16) if field.kind == "uuid" else -1), field.name
    else:
        assert ours == plain(theirs), field.name


def assert_same_struct(ours: Any, theirs: Any) -> None:
    """Compare a structure; kio's class has the fields of its version, in the same order, under names of its own."""
    version = theirs.__version__
    rows = [field for field in ours.FIELDS if field.is_present(version)]
    for field, their_field in zip(rows, dataclasses.fields(theirs), strict=True):
        assert_same(field, getattr(ours, field.name), getattr(theirs, their_field.name))


def test_most_messages_are_compared() -> None:
    assert len(PAIRS) >= PAIRS_MIN
    compared = {message_class.API_KEY for message_class, _ in PAIRS}
    assert {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 22} <= compared


@pytest.mark.parametrize(("message_class", "version"), PAIRS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_same_values_and_bytes(message_class: type[Message], version: int) -> None:
    entity = load_entity_schema(kio_name(message_class), version, kind_of(message_class))
    read, write = entity_reader(entity), entity_writer(entity)
    for message in facts.samples(message_class, version, SAMPLES, tame=True, tags=False):
        wire = message.encode(version)
        theirs, size = read(wire, 0)
        assert size == len(wire)
        assert_same_struct(message, theirs)
        buffer = io.BytesIO()
        write(buffer, theirs)
        assert buffer.getvalue() == wire
        assert message_class.decode(buffer.getvalue(), version) == message
