"""Keys and values of the coordinators' internal topics.

Format: an int16, then the message. Before a key the int16 is the record type, and the key itself is always version 0;
before a value it is the version of the value.

Source: Kafka's CoordinatorRecordSerde and MessageUtil (4.3.1).
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from barnabas.protocol.errors import EncodeError, MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.schema import Message

KEY_VERSION = 0
_PREFIX_BYTES = 2


class CoordinatorKey(Message):
    """The key of a coordinator's record; RECORD_TYPE says which."""

    __slots__ = ()
    RECORD_TYPE: ClassVar[int] = -1


class CoordinatorValue(Message):
    """The value that belongs to the key of the same RECORD_TYPE."""

    __slots__ = ()
    RECORD_TYPE: ClassVar[int] = -1


Versioned = TypeVar("Versioned", bound=Message)


def encode_versioned(record: CoordinatorKey | CoordinatorValue, version: int | None = None) -> bytes:
    """Write a key (`version` is its record type) or a value (`version` is its version, without one the newest)."""
    if isinstance(record, CoordinatorKey):
        if version is not None and version != record.RECORD_TYPE:
            raise EncodeError(f"{type(record).__name__} is of type {record.RECORD_TYPE}, not {version}")
        return record.RECORD_TYPE.to_bytes(_PREFIX_BYTES, "big", signed=True) + record.encode(KEY_VERSION)
    if version is None:
        version = record.MAX_VERSION
    return version.to_bytes(_PREFIX_BYTES, "big", signed=True) + record.encode(version)


def read_prefix(data: bytes | memoryview) -> int:
    """Return the int16 before a key (its record type) or a value (its version)."""
    if len(data) < _PREFIX_BYTES:
        raise MalformedMessageError("a coordinator's record is cut short")
    return int.from_bytes(data[:_PREFIX_BYTES], "big", signed=True)


def decode_versioned(record_class: type[Versioned], data: bytes | memoryview) -> Versioned:
    """Read a key or a value of this class; raises MalformedMessageError.

    The prefix of a key is not compared with the class, since the caller chose the class by it.
    """
    prefix = read_prefix(data)
    version = KEY_VERSION if issubclass(record_class, CoordinatorKey) else prefix
    try:
        return record_class.decode(data, version, _PREFIX_BYTES)
    except UnsupportedVersionError as error:
        raise MalformedMessageError(str(error)) from None
