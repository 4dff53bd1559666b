"""Numbers the snapshots of the cluster's metadata, so that a consumer group detects a change by one comparison.

Rules
1. The number rises with every new snapshot, and is at least the metadata log's offset of that snapshot. So coordinators
   on different brokers number nearly alike.

Threads: any.
Source: the role of CoordinatorMetadataImage.version() in Kafka's GroupMetadataManager (4.3).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Final, NamedTuple

import mmh3

from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache

#: As many topics that do not exist may be in a group's subscriptions. Why a bound: all names are gone through with
#: each change of the group, under its shard's lock, and a change may be a heartbeat of a few bytes.
UNKNOWN_TOPICS_MAX: Final = 10_000


class MetadataImage(NamedTuple):
    """A numbered snapshot; `creation` is the number of the last one that added topics."""

    snapshot: MetadataSnapshot
    number: int = 0
    creation: int = 0


class MetadataWatch:
    """Numbers a metadata cache's snapshots."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._image = MetadataImage(MetadataSnapshot())  # replaced whole under _lock

    def latest(self) -> MetadataImage:
        """Return the current image."""
        image = self._image
        return image if image.snapshot is self._cache.snapshot else self._refresh()

    def topic_id(self, name: str) -> bytes:
        """Return the id of the topic that has this name now; ZERO_UUID if there is none."""
        return self._cache.snapshot.topic_id(name)

    def _refresh(self) -> MetadataImage:
        with self._lock:
            before, snapshot = self._image, self._cache.snapshot
            if before.snapshot is not snapshot:
                number = max(before.number + 1, self._cache.offset)
                is_new = not snapshot.topic_names.keys() <= before.snapshot.topic_names.keys()
                self._image = MetadataImage(snapshot, number, number if is_new else before.creation)
            return self._image


def subscribes_anew(
    group_names: Mapping[str, int], before: Set[str], after: Set[str], snapshot: MetadataSnapshot
) -> bool:
    """Return whether a member changes its topic names. Raises ApiError(INVALID_REQUEST) if its group gets too many.

    `group_names` counts the group's subscriptions by topic name, before the change.
    """
    if after == before:
        return False
    added = sum(name not in group_names for name in after)
    removed = sum(group_names.get(name) == 1 and name not in after for name in before)
    most = len(snapshot.topics) + UNKNOWN_TOPICS_MAX
    if added > removed and len(group_names) + added - removed > most:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The group would be subscribed to more than {most} topics.")
    return True


def metadata_hash(topic_names: Iterable[str], snapshot: MetadataSnapshot) -> int:
    """Hash what assignments depend on: which of these topics exist, their ids and partition counts.

    The hash is part of the group's record, so it must be the same in every process: murmur3, which is not collision
    resistant and need not be. A client that chooses topic names so that two sets collide only makes its group notice a
    change late.

    Different from Apache Kafka: another hash, and racks are not part of it, since no assignor uses them.
    """
    text = bytearray()
    for name in sorted(topic_names):
        topic = snapshot.topics.get(name)
        if topic is not None:
            text += topic.id + len(topic.partitions).to_bytes(4, "big") + name.encode() + b"\0"
    return mmh3.hash64(bytes(text), signed=True)[0] if text else 0
