"""What commands do with the text that they are given and show."""

from __future__ import annotations

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
