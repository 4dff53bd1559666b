"""BrokerTopicMetrics: the meters that exist once for the broker and once more for each topic.

Handles of a topic are made at its first use and kept in a dict until the topic leaves this broker; the hot path costs
one dict lookup. Threads: any; a race makes the same handle twice, and the registry answers with the same instrument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from metrics import catalogue

if TYPE_CHECKING:
    from metrics.registry import Registry

Mark = Callable[[int], None]

_ROWS = {
    "bytes_in": catalogue.BYTES_IN_PER_SEC,
    "bytes_out": catalogue.BYTES_OUT_PER_SEC,
    "bytes_rejected": catalogue.BYTES_REJECTED_PER_SEC,
    "messages_in": catalogue.MESSAGES_IN_PER_SEC,
    "total_produce": catalogue.TOTAL_PRODUCE_REQUESTS_PER_SEC,
    "total_fetch": catalogue.TOTAL_FETCH_REQUESTS_PER_SEC,
    "failed_produce": catalogue.FAILED_PRODUCE_REQUESTS_PER_SEC,
    "failed_fetch": catalogue.FAILED_FETCH_REQUESTS_PER_SEC,
    "invalid_magic": catalogue.INVALID_MAGIC_NUMBER_RECORDS_PER_SEC,
    "invalid_crc": catalogue.INVALID_MESSAGE_CRC_RECORDS_PER_SEC,
    "invalid_sequence": catalogue.INVALID_OFFSET_OR_SEQUENCE_RECORDS_PER_SEC,
    "replication_bytes_in": catalogue.REPLICATION_BYTES_IN_PER_SEC,
    "replication_bytes_out": catalogue.REPLICATION_BYTES_OUT_PER_SEC,
}
_BROKER_ONLY = ("replication_bytes_in", "replication_bytes_out")


class TopicStats:
    """The meters of one topic, or of the whole broker."""

    __slots__ = tuple(_ROWS)

    bytes_in: Mark
    bytes_out: Mark
    bytes_rejected: Mark
    messages_in: Mark
    total_produce: Mark
    total_fetch: Mark
    failed_produce: Mark
    failed_fetch: Mark
    invalid_magic: Mark
    invalid_crc: Mark
    invalid_sequence: Mark
    replication_bytes_in: Mark
    replication_bytes_out: Mark

    def __init__(self, registry: Registry, topic: str | None) -> None:
        labels = {} if topic is None else {"topic": topic}
        for name, row in _ROWS.items():
            if topic is None or name not in _BROKER_ONLY:
                setattr(self, name, registry.meter(row, **labels).mark)


class BrokerTopicStats:
    """`all_topics` for the broker-wide lines, `topic(name)` for one topic's."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry  # fixed before start
        self._topics: dict[str, TopicStats] = {}  # any thread sets a key to an equivalent value
        self.all_topics = TopicStats(registry, None)  # fixed before start

    def topic(self, name: str) -> TopicStats:
        """The topic's meters."""
        stats = self._topics.get(name)
        return stats if stats is not None else self._topics.setdefault(name, TopicStats(self._registry, name))

    def remove(self, name: str) -> None:
        """Forget a topic that has left this broker."""
        if self._topics.pop(name, None) is not None:
            for row in _ROWS.values():
                self._registry.remove(row, topic=name)
