"""The life of share partitions, as their group's coordinator records it. Pure.

States (of a partition in a group; (i) says that it is also being initialised again, from another offset)
    UNKNOWN ----> INITIALIZING ----> INITIALIZED (i) ----> DELETING ----> UNKNOWN

Theory
The state of a share partition is kept by a share coordinator, often on another broker. So each change there is wrapped
in two records here: one before it is asked for, and one when it has succeeded. A coordinator that takes over in between
finds the first record, and asks again. Members are assigned initialised partitions only.

Rules
1. Only a partition that is being initialised becomes initialised. The answer to an attempt that was overtaken by a
   deletion changes nothing.
2. Initialising a topic ends its deletion: the requests of one share partition take effect in their order.

Source: Kafka's GroupMetadataManager (4.3): subscribedTopicsChangeMap, addInitializingTopicsRecords,
initializeShareGroupState, uninitializeShareGroupState, sharePartitionsEligibleForOffsetDeletion,
maybeCleanupShareGroupState.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from barnabas.broker.coordinators.share_groups.values import SharePartitions, TopicPart, TopicParts

NOTHING: frozenset[int] = frozenset()
Parts: TypeAlias = Mapping[bytes, Collection[int]]  # topic id -> partitions


def uninitialized(
    known: SharePartitions, attempts: Container[tuple[bytes, int]], counts: Mapping[bytes, int]
) -> dict[bytes, frozenset[int]]:
    """Return the partitions of these topics that are to be initialised: (topic id -> partition count) gives all."""
    found = {}
    for topic_id, count in counts.items():
        initialized = partitions_in(known.initialized, topic_id)
        if len(initialized) >= count and all(partition in initialized for partition in range(count)):
            continue
        missing = [p for p in range(count) if p not in initialized and (topic_id, p) not in attempts]
        if missing:
            found[topic_id] = frozenset(missing)
    return found


def partitions_in(parts: TopicParts, topic_id: bytes) -> frozenset[int]:
    """Return the topic's partitions."""
    return parts[topic_id].partitions if topic_id in parts else NOTHING


def begin_initializing(known: SharePartitions, wanted: TopicParts) -> SharePartitions:
    """Note that these partitions are to be initialised."""
    initializing = dict(known.initializing)
    for topic_id, (name, partitions) in wanted.items():
        _put(initializing, topic_id, name, partitions_in(initializing, topic_id) | partitions)
    deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in wanted}
    return SharePartitions(initializing, known.initialized, deleting)


def end_initializing(known: SharePartitions, done: Parts, failed: Parts) -> SharePartitions:
    """Note which partitions are initialised, and which are not to be expected (rule 1)."""
    initializing, initialized = dict(known.initializing), dict(known.initialized)
    for topic_id in dict.fromkeys((*done, *failed)):
        if topic_id not in known.initializing:
            continue
        name, partitions = known.initializing[topic_id]
        finished = partitions.intersection(done.get(topic_id, ()))
        _put(initialized, topic_id, name, partitions_in(initialized, topic_id) | finished)
        _put(initializing, topic_id, name, partitions - finished - frozenset(failed.get(topic_id, ())))
    return SharePartitions(initializing, initialized, known.deleting)


def begin_deleting(known: SharePartitions, topic_ids: Collection[bytes]) -> SharePartitions:
    """Note that the state of these topics is to be deleted, as far as there is any."""
    deleting = dict(known.deleting)
    for parts in (known.initializing, known.initialized):
        deleting.update({topic_id: part.name for topic_id, part in parts.items() if topic_id in topic_ids})
    return replace(forget(known, topic_ids), deleting=deleting)


def end_deleting(known: SharePartitions, topic_ids: Collection[bytes]) -> SharePartitions:
    """Note that the state of these topics is deleted."""
    return replace(known, deleting={id_: name for id_, name in known.deleting.items() if id_ not in topic_ids})


def forget(known: SharePartitions, topic_ids: Collection[bytes]) -> SharePartitions:
    """Remove topics that were deleted."""
    return SharePartitions(
        {topic_id: part for topic_id, part in known.initializing.items() if topic_id not in topic_ids},
        {topic_id: part for topic_id, part in known.initialized.items() if topic_id not in topic_ids},
        {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in topic_ids},
    )


def all_partitions(known: SharePartitions, topic_ids: Iterable[bytes]) -> dict[bytes, frozenset[int]]:
    """Return the partitions of these topics that a share coordinator may know."""
    return {
        topic_id: partitions_in(known.initializing, topic_id) | partitions_in(known.initialized, topic_id)
        for topic_id in topic_ids
    }


def _put(parts: dict[bytes, TopicPart], topic_id: bytes, name: str, partitions: frozenset[int]) -> None:
    if partitions:
        parts[topic_id] = TopicPart(name, partitions)
    else:
        parts.pop(topic_id, None)
