from __future__ import annotations

import pytest

from barnabas.testing.records import ANY, Expected, Matcher, Record, difference, is_content, unmatched


def record(value: bytes | None, key: bytes | None = None, partition: int = 0, offset: int = 0) -> Record:
    return Record("orders", partition, offset, 1000, key, value, (("trace", b"1"), ("trace", b"2"), ("none", None)))


@pytest.mark.parametrize(
    ("expected", "found", "is_it"),
    [
        ("a", b"a", True),
        ("a", b"b", False),
        (b"\xff", b"\xff", True),
        (bytearray(b"a"), b"a", True),
        (None, None, True),
        (None, b"", False),
        ("", None, False),
        ({"n": 1}, b'{ "n": 1 }', True),
        ({"n": 1}, b'{"n": 1, "m": 2}', False),
        ([1, 2], b"[1,2]", True),
        ({"n": 1}, b"not json", False),
        ({"n": 1}, b"\xff", False),
        (ANY, None, True),
        (ANY, b"x", True),
    ],
)
def test_content(expected: object, found: bytes | None, is_it: bool) -> None:
    assert is_content(expected, found) is is_it  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expected", "is_it"),
    [
        (Expected(), True),
        (Expected(value="v", key="k", partition=3), True),
        (Expected(partition=2), False),
        (Expected(key=None), False),
        (Expected(value="w"), False),
        (Expected(headers={"trace": "2"}), True),
        (Expected(headers={"trace": "3"}), False),
        (Expected(headers={"none": None}), True),
        (Expected(headers={"absent": None}), False),
    ],
)
def test_expected(expected: Expected, is_it: bool) -> None:
    assert expected.matches(record(b"v", b"k", 3)) is is_it


def test_each_matcher_takes_another_record() -> None:
    records = [record(b"a"), record(b"b", offset=1), record(b"a", offset=2)]
    matchers: list[Matcher] = ["a", "a", "a", lambda found: found.offset == 1]
    missing, left = unmatched(matchers, records)
    assert missing == ["a"]
    assert left == []
    assert unmatched([], records) == ([], records)


def test_a_difference_lists_missing_unexpected_and_all_records() -> None:
    def is_paid(found: Record) -> bool:
        return False

    records = [record(b"a", b"k", 1, 7), record(None), record(b"\xff" * 300)]
    missing: list[Matcher] = ["x", Expected(key="k", value={"n": 1}), Expected(), is_paid]
    text = difference("orders", missing, records[:1], records * 10)
    lines = text.splitlines()
    assert lines[:6] == [
        "orders: no record matches value='x'",
        "orders: no record matches key='k' value={'n': 1}",
        "orders: no record matches any",
        "orders: no record matches is_paid()",
        "orders: unexpected: orders-1@7 key='k' value='a' headers={'trace': b'2', 'none': None}",
        "orders has 30 records:",
    ]
    assert "value=None" in lines[7]
    assert len(lines[8]) < 400
    assert "(1203 characters)" in lines[8]
    assert lines[-1] == "  ... and 10 more"
    assert difference("empty", [], [], []) == "empty has 0 records"


def test_values_are_read_as_text_and_json() -> None:
    assert record("ä".encode()).text == "ä"
    assert record(b'{"a": [1]}').json() == {"a": [1]}
    with pytest.raises(ValueError, match="is a tombstone"):
        record(None).json()
    with pytest.raises(ValueError):
        record(b"{").json()
