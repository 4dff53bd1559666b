"""Records in tests: consumed ones, expected ones, and the difference between the two.

Plain data only; `barnabas.testing.reading` reads the records.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

SHOWN_RECORDS: Final = 20
SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        """The value as UTF-8 text; raises UnicodeDecodeError or, for a tombstone, ValueError."""
        if self.value is None:
            raise ValueError(f"{self} is a tombstone and has no value")
        return self.value.decode()

    def json(self) -> Any:
        """The value, parsed as JSON; raises ValueError."""
        return json.loads(self.text)

    def __str__(self) -> str:
        headers = f" headers={dict(self.headers)}" if self.headers else ""
        return f"{self.topic}-{self.partition}@{self.offset} key={_short(self.key)} value={_short(self.value)}{headers}"


class _Any:
    """Matches any content."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
Content: TypeAlias = bytes | str | Mapping[str, Any] | Sequence[Any] | _Any | None


@dataclass(frozen=True, slots=True)
class Expected:
    """The properties that a record must have; a property that is not given may be anything.

    `key`, `value` and the values of `headers` are bytes, text (UTF-8), None (no key; a tombstone), or a mapping or list
    that is compared with the bytes parsed as JSON. A record may have more `headers` than these.
    """

    value: Content = ANY
    key: Content = ANY
    headers: Mapping[str, Content] | None = None
    partition: int | None = None

    def matches(self, record: Record) -> bool:
        """Whether a record has these properties."""
        return (
            self.partition in (None, record.partition)
            and is_content(self.key, record.key)
            and is_content(self.value, record.value)
            and self._has_headers(record)
        )

    def _has_headers(self, record: Record) -> bool:
        return all(
            any(name == other and is_content(content, found) for other, found in record.headers)
            for name, content in (self.headers or {}).items()
        )

    def __str__(self) -> str:
        fields = {"key": self.key, "value": self.value, "headers": self.headers, "partition": self.partition}
        given = {name: value for name, value in fields.items() if _is_given(name, value)}
        return " ".join(f"{name}={_short(value)}" for name, value in given.items()) or "any"


Matcher: TypeAlias = Expected | Callable[[Record], bool] | Content


def is_content(expected: Content, found: bytes | None) -> bool:
    """Whether bytes have the expected content."""
    if isinstance(expected, _Any):
        return True
    if expected is None or found is None:
        return expected is found
    if isinstance(expected, str):
        return expected.encode() == found
    if isinstance(expected, bytes | bytearray | memoryview):
        return bytes(expected) == found
    try:
        return bool(json.loads(found) == expected)
    except ValueError:
        return False


def unmatched(matchers: Sequence[Matcher], records: Sequence[Record]) -> tuple[list[Matcher], list[Record]]:
    """The matchers without a record, and the records without a matcher.

    Each matcher takes one record: the earliest remaining one that matches. If several matchers fit a record, put the
    stricter ones first.
    """
    left = list(records)
    missing = []
    for matcher in matchers:
        taken = next((record for record in left if _matches(matcher, record)), None)
        if taken is None:
            missing.append(matcher)
        else:
            left.remove(taken)
    return missing, left


def _matches(matcher: Matcher, record: Record) -> bool:
    if isinstance(matcher, Expected):
        return matcher.matches(record)
    if callable(matcher):
        return bool(matcher(record))
    return is_content(matcher, record.value)


def difference(topic: str, missing: Sequence[Matcher], left: Sequence[Record], records: Sequence[Record]) -> str:
    """The message of a failed assertion: missing and unexpected records, then all records."""
    lines = [f"{topic}: no record matches {_named(matcher)}" for matcher in missing]
    lines += [f"{topic}: unexpected: {record}" for record in left]
    lines.append(f"{topic} has {len(records)} records{':' if records else ''}")
    lines += [f"  {record}" for record in records[:SHOWN_RECORDS]]
    if len(records) > SHOWN_RECORDS:
        lines.append(f"  ... and {len(records) - SHOWN_RECORDS} more")
    return "\n".join(lines)


def _named(matcher: Matcher) -> str:
    if isinstance(matcher, Expected):
        return str(matcher)
    if callable(matcher):
        return f"{getattr(matcher, '__name__', matcher)}()"
    return f"value={_short(matcher)}"


def _is_given(name: str, value: object) -> bool:
    return not isinstance(value, _Any) and (value is not None or name not in ("headers", "partition"))


def _short(value: object) -> str:
    """The repr of a value, cut to SHOWN_CHARACTERS; bytes of UTF-8 are shown as text."""
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            value = value.decode()
    shown = repr(value)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}... ({len(shown)} characters)"
