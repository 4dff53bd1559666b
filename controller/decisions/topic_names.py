"""Checks of topic names: illegal names, and names that collide.

Metric names do not distinguish '.' from '_', so `a.b` and `a_b` collide.

Source: org.apache.kafka.common.internals.Topic (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.common.topic_names import invalid_reason
from barnabas.protocol.errors import ApiError, ErrorCode

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if this cannot be the name of a topic."""
    reason = invalid_reason(name)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


class ExistingNames:
    """The names of the existing topics, for one request. They are indexed once, and only if needed."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._by_unified: dict[str, str] | None = None  # a name by its form with '_' for '.'

    def check_collision(self, name: str) -> None:
        """Raise INVALID_TOPIC_EXCEPTION if an existing topic has a different name that collides with this one."""
        if "." not in name and "_" not in name:
            return
        if self._by_unified is None:
            self._by_unified = {n.replace(".", "_"): n for n in self._names if "." in n or "_" in n}
        other = self._by_unified.get(name.replace(".", "_"), name)
        if other != name:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
