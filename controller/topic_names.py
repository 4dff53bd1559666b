"""What a topic may be called, and which names are too alike.

Metric names cannot tell '.' from '_', so `a.b` and `a_b` collide.

Source: org.apache.kafka.common.internals.Topic (Kafka 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from barnabas.protocol.errors import ApiError, ErrorCode

MAX_LENGTH: Final = 249
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_reason(name: str) -> str | None:
    """Why this cannot be the name of a topic; None if it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless this can be the name of a topic."""
    reason = invalid_reason(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if a topic with another, but too similar, name exists."""
    if "." not in name and "_" not in name:
        return
    unified = name.replace(".", "_")
    for other in existing:
        if other != name and other.replace(".", "_") == unified:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
