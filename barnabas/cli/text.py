"""What commands do with the text that they are given and show."""

from __future__ import annotations

import datetime

from barnabas.cli.errors import UserError


def key_value(text: str) -> tuple[str, str]:
    """Split KEY=VALUE. Raises UserError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UserError(f"'{text}' is not of the form KEY=VALUE")
    return key.strip(), value.strip()


def shown(value: bytes | str | None) -> str | None:
    """Bytes as text, whatever they are."""
    return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value


def time_ms(text: str) -> int:
    """A time in ms since 1970, of that number itself or of ISO 8601 (local time unless it names a zone).

    Raises UserError.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise UserError(f"'{text}' is no time: 2026-03-01T12:00, 2026-03-01T12:00:00Z or ms since 1970 are") from error


def time_shown(timestamp_ms: int) -> str:
    """A time of a record for people, in UTC; what is no time of a calendar is shown as it is (-1: none)."""
    if timestamp_ms == -1:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
