"""Messages as declarative classes.

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        group_id: str = string("0+")
        generation_id: int = int32("0+")

One class serves every version: a field that a version lacks has its default there. The rows are data. A codec for
(class, version) is built from them on first use (`plans`), and a class's constructor with its first object. So
importing a message costs little, and a process pays only for the versions that its peers speak.

Rules
1. A class has `__slots__` of its fields, a keyword-only constructor, `==` and `repr`. Messages are mutable and
   unhashable.
2. `unknown_tagged_fields` keeps unknown tags as (tag, bytes), ascending; encoding writes them back.

Threads: classes are shared; compiling twice in two threads yields equal functions, and one assignment publishes one.

Source: Kafka's generated message classes, KIP-482.
"""

from __future__ import annotations

import struct as _struct
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, dataclass_transform

from barnabas.protocol.errors import EncodeError, MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.fields import (
    FRESH,
    INFINITY,
    Field,
    array,
    bool_,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    parse_versions,
    records_,
    string,
    struct,
    uint16,
    uuid,
)
from barnabas.protocol.primitives import ZERO_UUID, Records, TaggedFields

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ZERO_UUID",
    "Field",
    "FileRegion",
    "Message",
    "Part",
    "Records",
    "Request",
    "Response",
    "Struct",
    "TaggedFields",
    "array",
    "bool_",
    "bytes_",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "records_",
    "string",
    "struct",
    "uint16",
    "uuid",
]

_ENCODE_FAILURES = (AttributeError, TypeError, _struct.error, UnicodeEncodeError, OverflowError)
_REPR_BYTES = 64
_HIDDEN = "[hidden]"
#: Passwords, and what stands for one; a repr may get into a log line or an error.
_SECRET_FIELDS = frozenset({"auth_bytes", "hmac", "salted_password", "server_key", "stored_key"})


class FileRegion(Protocol):
    """Part of an open file (storage's FileSlice), sent without being read into user space."""

    @property
    def size(self) -> int:
        """Return how many bytes the region has."""

    @property
    def position(self) -> int:
        """Return where the region starts in the file."""

    def fileno(self) -> int:
        """Return the descriptor of the open file."""

    def read(self) -> bytes:
        """Return the bytes, for callers that cannot send from a file."""


#: Part of an encoded message, sent after the parts before it.
Part: TypeAlias = bytes | memoryview | FileRegion


@dataclass_transform(kw_only_default=True, eq_default=True)
class StructMeta(type):
    """Turns annotated rows into slots, and keeps the rows in FIELDS."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str = "",
        flexible: str = "",
        record_type: int | None = None,
    ) -> StructMeta:
        fields = []
        for attribute, value in list(namespace.items()):
            if type(value) is Field:
                value.name = attribute
                fields.append(value)
                del namespace[attribute]
        namespace.setdefault("__slots__", tuple(field.name for field in fields))
        namespace["FIELDS"] = tuple(fields)
        if versions:
            namespace["MIN_VERSION"], namespace["MAX_VERSION"] = parse_versions(versions)
            namespace["FLEXIBLE_FROM"] = parse_versions(flexible)[0] if flexible else INFINITY
            namespace["_decoders"] = {}
            namespace["_encoders"] = {}
            namespace["NAME"] = name.removesuffix("Request").removesuffix("Response")
        if key is not None:
            namespace["API_KEY"] = key
        if record_type is not None:
            namespace["RECORD_TYPE"] = record_type
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **_: Any) -> None:
        super().__init__(name, bases, namespace)


class Struct(metaclass=StructMeta):
    """A structure inside a message, or a message itself."""

    __slots__ = ("unknown_tagged_fields",)
    FIELDS: ClassVar[tuple[Field, ...]]

    if TYPE_CHECKING:
        unknown_tagged_fields: TaggedFields = ()
    else:

        def __init__(self, **values: Any) -> None:
            """Compile the constructor of this class, replace this one with it, and call it."""
            from barnabas.protocol.plans import make_constructor

            cls = type(self)
            cls.__init__ = _compile_init(cls)
            make_constructor(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS) and bool(
            self.unknown_tagged_fields == other.unknown_tagged_fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show the fields; no secret, and of unknown tagged fields, which may hold some, only the sizes."""
        shown = [
            f"{field.name}={_HIDDEN if field.name in _SECRET_FIELDS else _shown(getattr(self, field.name))}"
            for field in self.FIELDS
        ]
        if self.unknown_tagged_fields:
            tags = ", ".join(f"{number}: {len(data)} bytes" for number, data in self.unknown_tagged_fields)
            shown.append(f"unknown_tagged_fields=({tags})")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A structure with versions of its own: a request, a response, a record of a log, a value of an embedded protocol.

    Versions are inclusive. FLEXIBLE_FROM is the first version with compact lengths and tagged fields.
    """

    __slots__ = ()
    NAME: ClassVar[str] = ""
    API_KEY: ClassVar[int] = -1
    IS_REQUEST: ClassVar[bool] = False
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = -1
    FLEXIBLE_FROM: ClassVar[int] = INFINITY
    # Built on first use, published by one assignment (see Threads).
    _decoders: ClassVar[dict[int, Callable[[Any, int], tuple[Any, int]]]] = {}
    _encoders: ClassVar[dict[int, Callable[[Any], tuple[list[Any], list[int]]]]] = {}

    @classmethod
    def decode(cls, buffer: bytes | bytearray | memoryview, version: int, offset: int = 0) -> Self:
        """Read a message; what follows it is ignored, as Kafka ignores it. `records` fields are views of `buffer`.

        Raises MalformedMessageError, and UnsupportedVersionError for a version out of range.
        """
        return cls.decoder(version)(buffer, offset)[0]

    @classmethod
    def decode_prefix(cls, buffer: bytes | bytearray | memoryview, version: int, offset: int = 0) -> tuple[Self, int]:
        """Read a message and return it with the position behind it; raises as `decode` does."""
        return cls.decoder(version)(buffer, offset)

    @classmethod
    def decoder(cls, version: int) -> Callable[[Any, int], tuple[Self, int]]:
        """Return the decoder of this version, for callers that decode many messages. Raises as `decode` does."""
        return cls._decoders.get(version) or cls._make_decoder(version)

    @classmethod
    def decode_error(cls, version: int, error: Exception) -> MalformedMessageError:
        """Return an error that names the message."""
        damage = "" if isinstance(error, MalformedMessageError) else " is cut short or damaged"
        return MalformedMessageError(f"{cls.__name__} v{version}{damage}: {error}")

    def encode(self, version: int) -> bytes:
        """Write the message; file regions are read.

        Raises EncodeError (its UnsupportedFieldError for a field that the version must not drop), and
        UnsupportedVersionError.
        """
        try:
            pieces, marks = (self._encoders.get(version) or self._make_encoder(version))(self)
            for mark in marks:
                if not isinstance(pieces[mark], (bytes, bytearray, memoryview)):
                    pieces[mark] = pieces[mark].read()
            return b"".join(pieces)
        except _ENCODE_FAILURES as error:
            raise self._encode_error(version, error) from error

    def encode_parts(self, version: int) -> list[Part]:
        """Write the message as parts to send in order; each non-empty `records` value is a part, not copied."""
        parts: list[Part] = []
        try:
            pieces, marks = (self._encoders.get(version) or self._make_encoder(version))(self)
            if not marks:
                return [b"".join(pieces)]
            start = 0
            for mark in marks:
                parts.append(b"".join(pieces[start:mark]))
                parts.append(pieces[mark])
                start = mark + 1
            if start < len(pieces):
                parts.append(b"".join(pieces[start:]))
        except _ENCODE_FAILURES as error:
            raise self._encode_error(version, error) from error
        return parts

    @classmethod
    def framer(cls, version: int) -> Callable[[Any, int], bytes | None] | None:
        """Return what writes a response of this version with its size and its header, given a correlation id, in C.

        It returns None for a message with records or with anything unusual. There is none without the C codec.
        """
        from barnabas.protocol.plans import framer_of

        return framer_of(cls._encoders.get(version) or cls._make_encoder(version))

    def _encode_error(self, version: int, error: Exception) -> EncodeError:
        """Return an error that names the field that cannot be encoded."""
        from barnabas.protocol.diagnosis import diagnose

        cls = type(self)
        reason = diagnose(self, version) or str(error)
        return EncodeError(f"{cls.__name__} v{version}: {reason}")

    @classmethod
    def _make_decoder(cls, version: int) -> Callable[[Any, int], tuple[Any, int]]:
        from barnabas.protocol.plans import make_decoder

        cls._check_version(version)
        decoder = cls._decoders[version] = make_decoder(cls, version, version >= cls.FLEXIBLE_FROM)
        return decoder

    @classmethod
    def _make_encoder(cls, version: int) -> Callable[[Any], tuple[list[Any], list[int]]]:
        from barnabas.protocol.plans import make_encoder

        cls._check_version(version)
        encoder = cls._encoders[version] = make_encoder(cls, version, version >= cls.FLEXIBLE_FROM)
        return encoder

    @classmethod
    def _check_version(cls, version: int) -> None:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise UnsupportedVersionError(
                f"{cls.__name__} has versions {cls.MIN_VERSION}-{cls.MAX_VERSION}, not {version}"
            )


class Request(Message):
    """A message that a client sends."""

    __slots__ = ()
    IS_REQUEST = True


class Response(Message):
    """A message that a server returns."""

    __slots__ = ()


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Build the keyword-only constructor of a class."""
    scope: dict[str, Any] = {"fresh": FRESH}
    parameters, body = [], []
    for field in cls.FIELDS:
        name = field.name
        scope[f"default_{name}"] = field.default
        parameters.append(f"{name}=default_{name}")
        if field.default is FRESH:
            scope[f"new_{name}"] = field.element
            made = "[]" if field.kind == "array" else f"new_{name}()"
            body.append(f" self.{name} = {made} if {name} is fresh else {name}")
        else:
            body.append(f" self.{name} = {name}")
    source = f"def __init__(self, *, {', '.join([*parameters, 'unknown_tagged_fields=()'])}):\n"
    source += "\n".join([*body, " self.unknown_tagged_fields = unknown_tagged_fields"])
    exec(compile(source, f"<constructor of {cls.__name__}>", "exec"), scope)
    init: Callable[..., None] = scope["__init__"]
    return init


def _shown(value: Any) -> str:
    """Return the repr of a value; of long byte strings, the length."""
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > _REPR_BYTES:
        return f"<{len(value)} bytes>"
    if isinstance(value, memoryview):
        return repr(bytes(value))
    return repr(value)
