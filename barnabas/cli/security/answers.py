"""Errors in the answers of security requests, in one line."""

from __future__ import annotations

from barnabas.cli.errors import RequestError
from barnabas.protocol.errors import ErrorCode


def check(error_code: int, message: str | None, what: str = "") -> None:
    """Raise RequestError if an answer, or the item `what` of it, has an error."""
    if error_code:
        name = ErrorCode.of(error_code).name
        subject = f"{what}: " if what else ""
        raise RequestError(f"{subject}{message or 'the cluster refused'} ({name})", (name,))
