"""Names that a topic may not have, and names that are too alike.

Metric names cannot tell '.' from '_', so `a.b` and `a_b` collide.

Source: org.apache.kafka.common.internals.Topic (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.common.topic_names import invalid_reason
from barnabas.protocol.errors import ApiError, ErrorCode

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


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
