"""Parses the text of arguments, and formats bytes and times for people."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from barnabas.cli.errors import ArgumentError, UserError

if TYPE_CHECKING:
    from pathlib import Path

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE. Raises UserError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ArgumentError(f"'{text}' is not of the form KEY=VALUE")
    return key.strip(), value.strip()


def properties_of(file: Path | None) -> dict[str, str]:
    """Return the content of a properties file; nothing without a file. Raises UserError."""
    if file is None:
        return {}
    from barnabas.config.errors import ConfigError  # Why here: few commands have such a file
    from barnabas.config.properties import parse_properties

    try:
        return parse_properties(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise UserError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error


def shown(value: bytes | str | None) -> str | None:
    """Bytes as text; invalid UTF-8 becomes backslash escapes."""
    return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value


def time_ms(text: str) -> int:
    """Parse ms since 1970 or ISO 8601 (local unless it has a zone) into ms since 1970. Raises UserError."""
    try:
        if text.isascii() and text.isdigit():
            if int(text) > INT64_MAX:
                raise OverflowError
            return int(text)
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise ArgumentError(
            f"'{text}' is not a time: write 2026-03-01T12:00, 2026-03-01T12:00:00Z or ms since 1970"
        ) from error


def time_shown(timestamp_ms: int) -> str:
    """A record's timestamp in UTC for people: "-" for -1 (none); the number itself if no calendar has that time."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
