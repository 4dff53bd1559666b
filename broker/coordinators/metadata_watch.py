"""Numbers the pictures of the cluster, so that consumer groups see by one comparison that it has changed.

Rules
1. The number goes up with every new picture, and is at least the offset of the metadata log that it tells of: so
   coordinators on different brokers count alike, nearly.

Threads: any.
Source: the role of CoordinatorMetadataImage.version() in Kafka's GroupMetadataManager (4.3).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import mmh3

from barnabas.broker.metadata_cache import MetadataSnapshot

if TYPE_CHECKING:
    from barnabas.broker.metadata_cache import MetadataCache


class Picture(NamedTuple):
    """A numbered snapshot; `creation` is the number of the last one in which topics appeared."""

    snapshot: MetadataSnapshot
    number: int = 0
    creation: int = 0


class MetadataWatch:
    """See the module."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._picture = Picture(MetadataSnapshot())  # replaced whole under _lock

    def look(self) -> Picture:
        """The cluster as it is now."""
        picture = self._picture
        return picture if picture.snapshot is self._cache.snapshot else self._look_again()

    def topic_id(self, name: str) -> bytes:
        """The id of the topic that has this name now; ZERO_UUID if there is none."""
        return self._cache.snapshot.topic_id(name)

    def _look_again(self) -> Picture:
        with self._lock:
            before, snapshot = self._picture, self._cache.snapshot
            if before.snapshot is not snapshot:
                number = max(before.number + 1, self._cache.offset)
                is_new = not snapshot.topic_names.keys() <= before.snapshot.topic_names.keys()
                self._picture = Picture(snapshot, number, number if is_new else before.creation)
            return self._picture


def metadata_hash(topic_names: Iterable[str], snapshot: MetadataSnapshot) -> int:
    """A hash of what assignments depend on: which of these topics exist, their ids and partition counts.

    It is in the group's record, so it must be the same in every process: murmur3, which keeps nothing secret and needs
    not. Who can choose names of topics so that two sets hash alike gains that a group sees a change late, no more.

    Different from Apache Kafka: another hash, and racks have no part in it, since no assignor asks for them.
    """
    text = bytearray()
    for name in sorted(topic_names):
        topic = snapshot.topics.get(name)
        if topic is not None:
            text += topic.id + len(topic.partitions).to_bytes(4, "big") + name.encode() + b"\0"
    return mmh3.hash64(bytes(text), signed=True)[0] if text else 0
