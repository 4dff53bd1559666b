r"""How `barnabas consume` prints a record: its value, a JSON object, or a format string.

*JSON* is lossless. One object a line:

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "timestamp_type": "CreateTime",
     "key": null, "value": "text", "headers": [["name", "value"], ["image", {"base64": "/9j/4A=="}]]}

A key, value or header value is a string if its bytes are UTF-8, {"base64": "..."} if they are not, and null if it is
null (a null value is a tombstone). `timestamp` is in ms since 1970; it and its type are null if the record has none.

*Formats* are kcat's: %t topic, %p partition, %o offset, %T timestamp in ms (-1: none), %k key, %s value, %K and %S
their lengths in bytes (-1: null), %R the value's length as 4 bytes (big-endian), %h headers as name=value,..., %% a
percent sign; \n \r \t \0 \\ \xHH. Null prints nothing.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from barnabas.cli.errors import ArgumentError

TIMESTAMP_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_ESCAPE = r"\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))"
_ESCAPED = re.compile(rf"{_ESCAPE}|(?P<plain>[^\\]+)", re.DOTALL)
_PIECE = re.compile(rf"%(?P<token>.?)|{_ESCAPE}|(?P<plain>[^%\\]+)", re.DOTALL)


class Record(NamedTuple):
    """A consumed record. `timestamp_ms` is -1 if it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


Show = Callable[[Record], bytes]


def record_of(message: Message) -> Record:
    """The record in a message of librdkafka's."""
    kind, timestamp_ms = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None  # only an unsent message lacks a partition and an offset
    assert offset is not None
    return Record(
        str(message.topic()),
        partition,
        offset,
        timestamp_ms if kind in TIMESTAMP_TYPES else -1,
        TIMESTAMP_TYPES.get(kind),
        message.key(),
        message.value(),
        cast("list[tuple[str, bytes | None]]", message.headers() or []),  # the stubs also allow produce()'s types
    )


def show_value(record: Record) -> bytes:
    """The value and a line break."""
    return (record.value or b"") + b"\n"


def show_json(record: Record) -> bytes:
    """A JSON object and a line break."""
    shape = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms if record.timestamp_type else None,
        "timestamp_type": record.timestamp_type,
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value),
        "headers": [[name, _json_bytes(value)] for name, value in record.headers],
    }
    return json.dumps(shape, ensure_ascii=False).encode() + b"\n"


def _json_bytes(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


# --- formats


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


_TOKENS: dict[str, Show] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: struct.pack(">i", _length(record.value)),
    "h": _headers,
    "%": lambda _record: b"%",
}


def format_of(text: str) -> Show:
    """The function that prints records in a format. Raises UserError."""
    pieces = [_piece_of(found.groupdict(), text) for found in _PIECE.finditer(text)]
    return lambda record: b"".join(piece if isinstance(piece, bytes) else piece(record) for piece in pieces)


def _piece_of(found: Mapping[str, str | None], text: str) -> bytes | Show:
    if found["token"] is not None:
        if found["token"] not in _TOKENS:
            known = " ".join(f"%{token}" for token in _TOKENS)
            raise ArgumentError(f"the format {text!r} has %{found['token']}; known are {known}")
        return _TOKENS[found["token"]]
    return _plain(found, text)


def _plain(found: Mapping[str, str | None], text: str) -> bytes:
    if found["plain"] is not None:
        return str(found["plain"]).encode()
    if found["hex"] is not None:
        return bytes.fromhex(found["hex"])
    if found["escape"] not in ESCAPES:
        raise ArgumentError(f"{text!r} has \\{found['escape']}; known are \\n \\r \\t \\0 \\\\ and \\xHH")
    return ESCAPES[found["escape"]]


def unescaped(text: str) -> bytes:
    r"""The bytes of a text that may contain \n, \t, \xHH, ... Raises UserError."""
    return b"".join(_plain(found.groupdict(), text) for found in _ESCAPED.finditer(text))
