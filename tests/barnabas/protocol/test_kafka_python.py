"""Our codec against kafka-python's: an independent implementation that interprets Kafka's schemas.

For each message and version that both have: kafka-python builds a message of its own from our values and writes the
very bytes that we write, and reads our bytes to the very values that we wrote.
"""

from __future__ import annotations

import importlib
import pkgutil
import uuid
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas.fields.codecs.types import BitField

from barnabas.protocol.fields import Field
from barnabas.protocol.messages.k18_api_versions import ApiVersionsResponse
from barnabas.protocol.schema import Message
from tests.support import messages as facts

SAMPLES = 6
PAIRS_MIN = 400


def their_classes() -> dict[str, Any]:
    """kafka-python's message classes by Kafka's names."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)
    found: dict[str, Any] = {}
    waiting = list(ApiMessage.__subclasses__())
    while waiting:
        candidate = waiting.pop()
        waiting += candidate.__subclasses__()
        if candidate._class_version is None and candidate._json is not None:
            found.setdefault(candidate._json["name"], candidate)
    return found


THEIRS = their_classes()
PAIRS = [
    (message_class, version)
    for message_class in facts.api_classes()
    if message_class.__name__ in THEIRS
    for version in facts.versions(message_class)
    if version <= THEIRS[message_class.__name__].max_version
]


def to_theirs(field: Field, their_field: Any, value: Any, version: int) -> Any:
    """Our value of a field as kafka-python holds it."""
    if value is None:
        return None
    if field.kind == "array":
        if isinstance(field.element, str):
            return [plain_to_theirs(field.element, item) for item in value]
        return [build(their_field.array_of.data_class, item, version) for item in value]
    if field.kind == "struct":
        return build(their_field.data_class, value, version)
    if getattr(their_field, "_type", None) is BitField:
        return BitField.from_32_bit_field(value)
    return plain_to_theirs(field.kind, value)


def plain_to_theirs(kind: str, value: Any) -> Any:
    return uuid.UUID(bytes=value) if kind == "uuid" else value


def build(their_class: Any, ours: Any, version: int) -> Any:
    """kafka-python's object with the values of ours; rows are matched by their order."""
    values = {}
    for field, their_field in rows(their_class, ours, version):
        value = getattr(ours, field.name)
        # kafka-python writes each tagged field that it is given, default or not.
        if not field.is_tagged(version) or value != field.default_value():
            values[their_field.name] = to_theirs(field, their_field, value, version)
    return their_class(version=version, **values)


def rows(their_class: Any, ours: Any, version: int) -> list[tuple[Field, Any]]:
    """The rows of a version on both sides."""
    mine = [field for field in ours.FIELDS if field.is_present(version)]
    others = [field for field in their_class._struct.fields.values() if field.for_version_q(version)]
    return list(zip(mine, others, strict=True))


def assert_same(theirs: Any, ours: Any, version: int) -> None:
    """Compare the values of a structure."""
    for field, their_field in rows(type(theirs), ours, version):
        mine, other = getattr(ours, field.name), getattr(theirs, their_field.name)
        if mine is None or other is None:
            # None is what kafka-python has for the zero uuid and for a tagged structure that was not there.
            assert mine is other or mine == field.default_value(), field.name
        elif isinstance(field.element, type):
            pairs = zip(other, mine, strict=True) if field.kind == "array" else [(other, mine)]
            for other_item, item in pairs:
                assert_same(other_item, item, version)
        else:
            assert to_theirs(field, their_field, mine, version) == other, field.name


def test_most_messages_are_compared() -> None:
    assert len(PAIRS) >= PAIRS_MIN


@pytest.mark.parametrize(("message_class", "version"), PAIRS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_same_values_and_bytes(message_class: type[Message], version: int) -> None:
    their_class = THEIRS[message_class.__name__]
    for message in facts.samples(message_class, version, SAMPLES, tags=False):
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # kafka-python reads any other as the answer to an unknown version
        wire = message.encode(version)
        assert bytes(build(their_class, message, version).encode(version=version)) == wire
        assert_same(their_class.decode(wire, version=version), message, version)
