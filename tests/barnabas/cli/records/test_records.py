"""Formats in which `barnabas consume` prints records."""

from __future__ import annotations

import json

import pytest

from barnabas.cli.errors import UserError
from barnabas.cli.records.records import Record, format_of, show_json, show_value, unescaped

RECORD = Record("t", 3, 7, 1_700_000_000_000, "CreateTime", b"k", "v\u00e9".encode(), [("a", b"1"), ("b", None)])
NULL = Record("t", 0, 0, -1, None, None, None, [])


def test_json_is_lossless() -> None:
    assert json.loads(show_json(RECORD)) == {
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": "v\u00e9",
        "headers": [["a", "1"], ["b", None]],
    }
    binary = RECORD._replace(value=b"\xff\x00", key=b"", headers=[("image", b"\xfe")])
    shown = json.loads(show_json(binary))
    assert (shown["value"], shown["key"], shown["headers"]) == (
        {"base64": "/wA="},
        "",
        [["image", {"base64": "/g=="}]],
    )
    shown = json.loads(show_json(NULL))
    assert (shown["key"], shown["value"], shown["timestamp"], shown["timestamp_type"]) == (None, None, None, None)
    assert show_json(RECORD._replace(value=b"two\nlines")).count(b"\n") == 1


def test_a_value_ends_with_a_line_break() -> None:
    assert show_value(RECORD) == "v\u00e9\n".encode()
    assert show_value(NULL) == b"\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"%t[%p]@%o %T\n", b"t[3]@7 1700000000000\n"),
        (r"%k=%s (%K/%S)", "k=v\u00e9 (1/3)".encode()),
        (r"%h", b"a=1,b="),
        (r"%R", b"\0\0\0\x03"),
        (r"100%%\t\x41\0\\", b"100%\tA\0\\"),
        ("", b""),
    ],
)
def test_formats(text: str, shown: bytes) -> None:
    assert format_of(text)(RECORD) == shown


def test_null_prints_nothing_and_has_length_minus_1() -> None:
    assert format_of("<%k|%s|%K|%S|%T|%h>")(NULL) == b"<||-1|-1|-1|>"
    assert format_of("%R")(NULL) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%q", "%", "\\", r"\q", r"\x4"])
def test_an_unknown_token_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="known are"):
        format_of(text)


def test_delimiters_are_bytes() -> None:
    assert unescaped(r"%\t\x00\n") == b"%\t\0\n"
