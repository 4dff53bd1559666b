"""Records as tests see them: what was produced, what was expected, and where the two differ.

All of it is plain data; `barnabas.testing.reading` gets the records.
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
    """A record that lies in a topic."""

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
            raise ValueError(f"{self} is a tombstone: it has no value")
        return self.value.decode()

    def json(self) -> Any:
        """The value read as JSON; raises ValueError."""
        return json.loads(self.text)

    def __str__(self) -> str:
        headers = f" headers={dict(self.headers)}" if self.headers else ""
        return f"{self.topic}-{self.partition}@{self.offset} key={_short(self.key)} value={_short(self.value)}{headers}"


class _Any:
    """Stands for whatever there is."""

    def __repr__(self) -> str:
        return "ANY"


ANY: Final = _Any()
Content: TypeAlias = bytes | str | Mapping[str, Any] | Sequence[Any] | _Any | None


@dataclass(frozen=True, slots=True)
class Expected:
    """What a record must look like; what is not said may be anything.

    `key`, `value` and the values of `headers` are bytes, text (UTF-8), None (absent; a tombstone), or a mapping or
    list, which is compared with what the bytes mean as JSON. Of `headers` those that are named must be there.
    """

    value: Content = ANY
    key: Content = ANY
    headers: Mapping[str, Content] | None = None
    partition: int | None = None

    def matches(self, record: Record) -> bool:
        """Whether a record looks like this."""
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
        said = {"key": self.key, "value": self.value, "headers": self.headers, "partition": self.partition}
        return " ".join(f"{name}={_short(what)}" for name, what in said.items() if not _is_unsaid(name, what)) or "any"


Matcher: TypeAlias = Expected | Callable[[Record], bool] | Content


def is_content(expected: Content, found: bytes | None) -> bool:
    """Whether bytes are what was expected of them."""
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
    """The matchers that no record is left for, and the records that none of the matchers took.

    Each matcher takes one record, the earliest that is left: give the strict ones first where several fit.
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
    """What a failed assertion tells: what is missing or too much, and what there is."""
    lines = [f"{topic}: no record is {_named(matcher)}" for matcher in missing]
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
        return f"one for which {getattr(matcher, '__name__', matcher)} is true"
    return f"value={_short(matcher)}"


def _is_unsaid(name: str, what: object) -> bool:
    return isinstance(what, _Any) or (what is None and name in ("headers", "partition"))


def _short(what: object) -> str:
    """As Python would write it, the bytes of text as text, and not too long."""
    if isinstance(what, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            what = what.decode()
    shown = repr(what)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}... ({len(shown)} characters)"
