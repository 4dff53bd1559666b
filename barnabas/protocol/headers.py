"""Request and response headers, and the size in front of a frame.

Format of a request header:
    version 0  int16 key, int16 version, int32 correlation id           (ControlledShutdown v0 only)
    version 1  the same, then the client id as a nullable string
    version 2  the same (the client id is not compact), then tagged fields; used by flexible versions
A response header is the correlation id, followed by tagged fields for flexible versions; but never in an ApiVersions
response: a client must be able to read the answer to a version that the broker does not have (KIP-511).

Source: Kafka's ApiMessageType and RequestHeader (4.3.1; 3.9 for ControlledShutdown).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.errors import EncodeError, MalformedMessageError
from barnabas.protocol.primitives import TaggedFields, read_tag_spans, read_text, read_unknown_tags, tag_section
from barnabas.protocol.schema import Message, Part

try:
    from barnabas.protocol._codec import request_header as _compiled
except ImportError:  # the C extension was not built
    _compiled = None  # type: ignore[assignment]

SIZE_BYTES: Final = 4

_FIXED: Final = struct.Struct(">hhi")
_FIXED_AND_LENGTH: Final = struct.Struct(">hhiH")  # Why together: each access to a buffer costs as much as a field
_LENGTH_MAX: Final = 0x7FFF
_CORRELATION_ID: Final = struct.Struct(">i")
_SIZE: Final = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")
_SIZE_AND_FLEXIBLE_CORRELATION_ID: Final = struct.Struct(">iix")
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)
_FLEXIBLE_FROM: Final = {int(key): row.flexible_from for key, row in ROWS.items()}
_ANOTHER_LAYOUT: Final = 255
_FLEXIBLE_FROM_TABLE: Final = bytes(
    [
        _ANOTHER_LAYOUT
        if key == _CONTROLLED_SHUTDOWN
        else min(_FLEXIBLE_FROM.get(key, _ANOTHER_LAYOUT), _ANOTHER_LAYOUT)
        for key in range(max(_FLEXIBLE_FROM) + 1)
    ]
)
"""By API key; `_ANOTHER_LAYOUT` stands for what only the code in Python reads."""

_Found = tuple[int, int, int, str | None, int]
_read_usual: Final[Callable[[bytes | memoryview, int, bytes], _Found | None] | None] = _compiled

_Framer = Callable[[Message, int], bytes | None]
_framers: Final[dict[int, _Framer]] = {}
"""By API key and version, what writes whole responses in C. Entries are only replaced."""


class RequestHeader:
    """The header at the start of each request."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id", "unknown_tagged_fields")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestHeader) and self._values() == other._values()

    def __repr__(self) -> str:
        return f"RequestHeader{self._values()!r}"

    def _values(self) -> tuple[object, ...]:
        return self.api_key, self.api_version, self.correlation_id, self.client_id, self.unknown_tagged_fields


def request_header_version(api_key: int, version: int) -> int:
    """Return the version of the header before a request; raises KeyError for an unknown key."""
    if version >= _FLEXIBLE_FROM[api_key]:
        return 2
    return 0 if api_key == _CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(api_key: int, version: int) -> int:
    """Return the version of the header before a response; raises KeyError for an unknown key."""
    return 1 if version >= _FLEXIBLE_FROM[api_key] and api_key != _API_VERSIONS else 0


def decode_request_header(buffer: bytes | memoryview, offset: int = 0) -> tuple[RequestHeader, int]:
    """Read a request's header; return it and where the body starts.

    An unknown version of a known key is read too, with the layout of that key's newest header. Raises
    MalformedMessageError, also for an unknown key, since the layout of its header is unknown.
    """
    found = None if _read_usual is None else _read_usual(buffer, offset, _FLEXIBLE_FROM_TABLE)
    if found is not None:
        key, version, correlation_id, client_id, body = found
        return RequestHeader(key, version, correlation_id, client_id), body
    try:
        return _decode_request_header(buffer, offset)
    except KeyError as unknown:
        raise MalformedMessageError(f"unknown API key {unknown}") from None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"request header is cut short or damaged: {error}") from None


def _decode_request_header(buffer: bytes | memoryview, offset: int) -> tuple[RequestHeader, int]:
    key, version, correlation_id, length = _FIXED_AND_LENGTH.unpack_from(buffer, offset)
    header_version = request_header_version(key, version)
    if header_version == 0:  # what follows is the body, of four bytes
        return RequestHeader(key, version, correlation_id), offset + _FIXED.size
    position = offset + _FIXED_AND_LENGTH.size
    client_id = None
    if length <= _LENGTH_MAX:  # else it is negative: null
        start, position = position, position + length
        if position > len(buffer):
            raise MalformedMessageError("client_id passes the end of the request")
        client_id = read_text(buffer[start:position])
    if header_version == 1:
        return RequestHeader(key, version, correlation_id, client_id), position
    tag_count = buffer[position]
    position += 1
    unknown: TaggedFields = ()
    if tag_count:
        unknown, position = read_unknown_tags(buffer, position, tag_count, len(buffer))
    return RequestHeader(key, version, correlation_id, client_id, unknown), position


def encode_request_header(header: RequestHeader) -> bytes:
    """Write a request's header."""
    version = request_header_version(header.api_key, header.api_version)
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    if version == 0:
        return fixed
    if header.client_id is None:
        client_id = b"\xff\xff"
    else:
        text = header.client_id.encode()
        if len(text) > _LENGTH_MAX:
            raise EncodeError(f"client_id of {len(text)} bytes is too long")
        client_id = len(text).to_bytes(2, "big") + text
    tags = tag_section((), header.unknown_tagged_fields) if version == 2 else b""
    return fixed + client_id + tags


def encode_request(header: RequestHeader, message: Message) -> bytes:
    """Write a whole request frame: size, header, body."""
    head = encode_request_header(header)
    body = message.encode(header.api_version)
    return _SIZE.pack(len(head) + len(body)) + head + body


def decode_response_header(buffer: bytes | memoryview, api_key: int, version: int, offset: int = 0) -> tuple[int, int]:
    """Read a response's header; return the correlation id and where the body starts.

    Raises MalformedMessageError, and KeyError for an unknown key.
    """
    header_version = response_header_version(api_key, version)
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, offset)
        position = offset + _CORRELATION_ID.size
        if header_version == 1:
            tag_count = buffer[position]
            _, position = read_tag_spans(buffer, position + 1, tag_count, len(buffer))
    except (struct.error, IndexError) as error:
        raise MalformedMessageError(f"response header is cut short: {error}") from None
    return correlation_id, position


def response_parts(header: RequestHeader, message: Message, encoded: bytes | None = None) -> list[Part]:
    """Write a whole response frame, size first, as parts to send one after another.

    The answer has the request's version, but an ApiVersions request of an unknown version is answered in version 0
    (KIP-511). `encoded` is the message in that version, where it is at hand.
    """
    version = header.api_version
    row = header.api_key << 16 | version
    framer = _framers.get(row)
    if framer is not None and encoded is None:
        frame = framer(message, header.correlation_id)
        if frame is not None:
            return [frame]
        _framers[row] = _no_frame  # Why: the next message of this kind will have records, too
    if header.api_key == _API_VERSIONS and version > message.MAX_VERSION:
        version = 0
    if response_header_version(header.api_key, version) == 1:
        layout = _SIZE_AND_FLEXIBLE_CORRELATION_ID
    else:
        layout = _SIZE_AND_CORRELATION_ID
    size = layout.size - SIZE_BYTES
    parts: list[Part] = message.encode_parts(version) if encoded is None else [encoded]
    # Why not ApiVersions: it is answered in each of 32,768 versions.
    if framer is None and encoded is None and header.api_key != _API_VERSIONS:
        _framers[row] = message.framer(version) or _no_frame
    if len(parts) == 1 and isinstance(parts[0], bytes):  # nearly every response
        return [layout.pack(size + len(parts[0]), header.correlation_id) + parts[0]]
    head = layout.pack(size + frame_size(parts), header.correlation_id)
    if parts and isinstance(parts[0], bytes):
        parts[0] = head + parts[0]
    else:
        parts.insert(0, head)
    return parts


def _no_frame(_message: Message, _correlation_id: int) -> bytes | None:
    """Stand for the framer of messages that C does not write at once."""
    return None


def frame_size(parts: list[Part]) -> int:
    """Return how many bytes a whole response frame has."""
    size = 0
    for part in parts:
        size += len(part) if isinstance(part, bytes) else _part_size(part)
    return size


def _part_size(part: Part) -> int:
    if isinstance(part, (bytes, bytearray)):
        return len(part)
    return part.nbytes if isinstance(part, memoryview) else part.size
