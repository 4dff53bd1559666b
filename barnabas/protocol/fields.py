"""The rows of a message table: a `Field` gives the wire type of one field and the versions that have it.

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")

Version ranges are written as Kafka writes them: "3", "0-7", "3+". They stay text until a codec is compiled from them,
so that defining a message costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

INFINITY = 0x7FFF


@cache
def parse_versions(text: str) -> tuple[int, int]:
    """Return a range of versions as inclusive bounds; "" is the empty range (0, -1)."""
    if not text:
        return 0, -1
    if text.endswith("+"):
        return int(text[:-1]), INFINITY
    low, _, high = text.partition("-")
    return int(low), int(high or low)


class Field:
    """One field of a structure.

    `kind` is the wire type. `element` is, for an array, the kind or the structure of its elements, and for a structure
    field the structure. `default` is the value that an absent field has ([] and a structure's class mean a fresh one).
    A field that is not `ignorable` must have its default where a version cannot carry it.
    """

    __slots__ = ("default", "element", "ignorable", "kind", "name", "nullable", "tag", "tagged", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        nullable: str,
        tag: int | None,
        tagged: str,
        ignorable: bool,
        element: Any = None,
    ) -> None:
        self.name = ""  # fixed before start: the attribute's name, set by the metaclass
        self.kind = kind
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable
        self.element = element

    def is_present(self, version: int) -> bool:
        """Return whether this version has the field."""
        low, high = parse_versions(self.versions)
        return low <= version <= high

    def is_nullable(self, version: int) -> bool:
        """Return whether the field may be null in this version."""
        low, high = parse_versions(self.nullable)
        return low <= version <= high

    def is_tagged(self, version: int) -> bool:
        """Return whether the field is in the tagged section in this version."""
        low, high = parse_versions(self.tagged)
        return low <= version <= high

    def default_value(self) -> Any:
        """Return the default; lists and structures are fresh."""
        if self.default is FRESH:
            return [] if self.kind == "array" else self.element()
        return self.default


FRESH = object()  # the default of lists and structures: a new, empty one each time


# The specifiers. Each returns Any, so that a type checker takes the annotation as the truth and the
# assignment as "has a default"; a test holds the annotations to the rows.


def bool_(
    versions: str, default: bool = False, *, tag: int | None = None, tagged: str = "", ignorable: bool = False
) -> Any:
    """Declare a boolean: one byte, any value but 0 is true."""
    return Field("bool", versions, default, "", tag, tagged, ignorable)


def int8(versions: str, default: int = 0, *, tag: int | None = None, tagged: str = "", ignorable: bool = False) -> Any:
    """Declare a signed byte."""
    return Field("int8", versions, default, "", tag, tagged, ignorable)


def int16(versions: str, default: int = 0, *, tag: int | None = None, tagged: str = "", ignorable: bool = False) -> Any:
    """Declare a signed 16-bit integer."""
    return Field("int16", versions, default, "", tag, tagged, ignorable)


def uint16(
    versions: str, default: int = 0, *, tag: int | None = None, tagged: str = "", ignorable: bool = False
) -> Any:
    """Declare an unsigned 16-bit integer."""
    return Field("uint16", versions, default, "", tag, tagged, ignorable)


def int32(versions: str, default: int = 0, *, tag: int | None = None, tagged: str = "", ignorable: bool = False) -> Any:
    """Declare a signed 32-bit integer."""
    return Field("int32", versions, default, "", tag, tagged, ignorable)


def int64(versions: str, default: int = 0, *, tag: int | None = None, tagged: str = "", ignorable: bool = False) -> Any:
    """Declare a signed 64-bit integer."""
    return Field("int64", versions, default, "", tag, tagged, ignorable)


def float64(
    versions: str, default: float = 0.0, *, tag: int | None = None, tagged: str = "", ignorable: bool = False
) -> Any:
    """Declare an IEEE 754 double."""
    return Field("float64", versions, default, "", tag, tagged, ignorable)


def uuid(versions: str, *, tag: int | None = None, tagged: str = "", ignorable: bool = False) -> Any:
    """Declare a uuid: 16 bytes, all zero by default."""
    return Field("uuid", versions, bytes(16), "", tag, tagged, ignorable)


def string(
    versions: str,
    default: str | None = "",
    *,
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    ignorable: bool = False,
) -> Any:
    """Declare a UTF-8 string of at most 32767 bytes."""
    return Field("string", versions, default, nullable, tag, tagged, ignorable)


def bytes_(
    versions: str,
    default: bytes | None = b"",
    *,
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    ignorable: bool = False,
) -> Any:
    """Declare a byte string, copied out of the message."""
    return Field("bytes", versions, default, nullable, tag, tagged, ignorable)


def records_(versions: str, *, nullable: str = "", ignorable: bool = False) -> Any:
    """Declare record batches, never copied: a view of the message, or a file region to send. Null by default."""
    return Field("records", versions, None, nullable, None, "", ignorable)


def array(
    element: type | Callable[..., Any],
    versions: str,
    default: Any = FRESH,
    *,
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    ignorable: bool = False,
) -> Any:
    """Declare an array of structures, `array(Topic, ...)`, or of plain values, `array(int32, ...)`."""
    of = KIND_OF.get(element, element)
    return Field("array", versions, default, nullable, tag, tagged, ignorable, of)


def struct(
    element: type,
    versions: str,
    default: Any = FRESH,
    *,
    nullable: str = "",
    tag: int | None = None,
    tagged: str = "",
    ignorable: bool = False,
) -> Any:
    """Declare a structure in place."""
    return Field("struct", versions, default, nullable, tag, tagged, ignorable, element)


KIND_OF: dict[Any, str] = {
    bool_: "bool",
    int8: "int8",
    int16: "int16",
    uint16: "uint16",
    int32: "int32",
    int64: "int64",
    float64: "float64",
    uuid: "uuid",
    string: "string",
    bytes_: "bytes",
}
