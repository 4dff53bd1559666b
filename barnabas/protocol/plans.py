"""Codecs in C: a plan is the table of one (message class, version); `_codec.c` walks it to decode and to encode.

A plan handles ordinary messages in a tenth of the time that the generated code of `codec` needs. It hands everything
else (damage, values of unusual types, unknown tagged fields) to the generated code, which is compiled on first use.
Without a C compiler, the generated code does all the work.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntFlag
from typing import Any

from barnabas.protocol import codec, limits
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.fields import FRESH, Field

try:
    from barnabas.protocol._codec import Plan as _Plan
except ImportError:  # there was no C compiler
    _Plan = None  # type: ignore[assignment, misc]

Decoder = Callable[[Any, int], tuple[Any, int]]
Encoder = Callable[[Any], tuple[list[Any], list[int]]]
Framer = Callable[[Any, int], bytes | None]

# Generated code may raise its own error, the error of a read past the end, or that of text that is not UTF-8.
_DECODE_FAILURES = (MalformedMessageError, IndexError, struct.error, UnicodeDecodeError, OverflowError)

_NO_VERSION = -1  # of a constructor, which needs only the fields' defaults

# As `enum kind` of _codec.c.
KINDS = {
    kind: number
    for number, kind in enumerate(
        (
            *("bool", "int8", "int16", "uint16", "int32", "int64", "float64", "uuid"),
            *("string", "bytes", "records", "array", "struct"),
        )
    )
}


class Flag(IntFlag):
    """Properties of a field in one version, for `_codec.c`."""

    PRESENT = 1
    NULLABLE = 2
    TAGGED = 4
    IGNORABLE = 8
    FRESH = 16  # its default is a new list or structure each time


def make_decoder(cls: Any, version: int, flexible: bool) -> Decoder:
    """Return `decode(buffer, position) -> (message, position behind it)` of a version.

    It raises MalformedMessageError.
    """
    if _Plan is None:
        return make_python_decoder(cls, version, flexible)
    decode: Decoder = _plan(cls, version, flexible, is_whole=True).decode
    return decode


def make_python_decoder(cls: Any, version: int, flexible: bool) -> Decoder:
    """Return the decoder of a version that uses no C."""
    decode = codec.compile_decoder(cls, version, flexible)

    def decode_or_explain(buffer: Any, position: int) -> tuple[Any, int]:
        try:
            return decode(buffer, position)
        except _DECODE_FAILURES as error:
            raise cls.decode_error(version, error) from error

    return decode_or_explain


def make_encoder(cls: Any, version: int, flexible: bool) -> Encoder:
    """Return `encode(message) -> (pieces, indexes of those that are records)` of a version."""
    if _Plan is None:
        return codec.compile_encoder(cls, version, flexible)
    encode: Encoder = _plan(cls, version, flexible, is_whole=True).encode
    return encode


def framer_of(encoder: Encoder) -> Framer | None:
    """Return `frame(message, correlation id) -> bytes | None` of an encoder's version; None if it is in Python."""
    framer: Framer | None = getattr(getattr(encoder, "__self__", None), "frame", None)
    return framer


def make_constructor(cls: Any) -> None:
    """Replace a class's constructor by one in C, if the C codec is compiled."""
    if _Plan is not None:
        _plan(cls, _NO_VERSION, False, is_whole=False).construct()


def _plan(cls: Any, version: int, flexible: bool, *, is_whole: bool) -> Any:
    """Build the plan of a structure and of the structures inside it; only a whole message needs the fallbacks."""
    fields = [field for field in cls.FIELDS if not _is_tagged(field, version)]
    fields += sorted((field for field in cls.FIELDS if _is_tagged(field, version)), key=lambda field: field.tag or 0)
    rows = tuple(_row(field, version, flexible) for field in fields)
    if not is_whole:
        return _Plan(cls, flexible, rows, None, None, 0)
    decode = _on_first_use(lambda: make_python_decoder(cls, version, flexible))
    encode = _on_first_use(lambda: codec.compile_encoder(cls, version, flexible))
    return _Plan(cls, flexible, rows, decode, encode, limits.elements_max(cls))


def _row(field: Field, version: int, flexible: bool) -> tuple[str, int, int, int, Any, Any]:
    """(name, kind, flags, tag, default, plan or kind of the elements)."""
    flags = Flag(0)
    for flag, holds in (
        (Flag.PRESENT, field.is_present(version)),
        (Flag.NULLABLE, field.is_nullable(version)),
        (Flag.TAGGED, _is_tagged(field, version)),
        (Flag.IGNORABLE, field.ignorable),
        (Flag.FRESH, field.default is FRESH),
    ):
        if holds:
            flags |= flag
    element: Any = 0
    if isinstance(field.element, type):
        element = _plan(field.element, version, flexible, is_whole=False)
    elif field.element is not None:
        element = KINDS[field.element]
    default = None if field.default is FRESH else field.default
    return field.name, KINDS[field.kind], int(flags), field.tag or 0, default, element


def _is_tagged(field: Field, version: int) -> bool:
    return field.is_present(version) and field.is_tagged(version)


def _on_first_use(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Wrap a function that is built on its first call."""
    made: list[Callable[..., Any]] = []

    def call(*arguments: Any) -> Any:
        if not made:
            made.append(make())
        return made[0](*arguments)

    return call
