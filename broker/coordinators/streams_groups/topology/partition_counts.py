"""Decides how many partitions the internal topics of a topology have. Pure.

Rules (subtopologies in the order of their ids)
1. A repartition topic has the count that the application names. Else it has that of the subtopology that writes it: the
   greatest count among the topics that this subtopology reads, as far as they are known.
2. Topics that are copartitioned have equal counts. Source topics decide; without any, a repartition topic whose count
   the application names; without any, the greatest count.
3. A changelog has a partition for each task: the greatest count among the topics that its subtopology reads.
4. For all decisions, the count of a topic that exists is what it is. `configured.py` compares it with what is decided.

Rule 1 takes time in proportion to the size of the topology, however its subtopologies depend on each other.

Source: Kafka's RepartitionTopics, CopartitionedTopicsEnforcer, ChangelogTopics, InternalTopicManager (4.3).

Different from Apache Kafka: without source topics, only the repartition topics of the same copartition group decide
(Kafka: of the whole topology, so that an unrelated topic decides); the order of subtopologies (Kafka: of their hashes,
which is the same for the ids 0 to 9).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from barnabas.broker.coordinators.streams_groups.topology.validation import invalid
from barnabas.broker.coordinators.streams_groups.values import Subtopology, Topology

COUNTS_SHOWN_MAX: Final = 20  # topics in a message; Kafka lists all
PartitionCount: TypeAlias = Callable[[str], int | None]


class IncorrectlyPartitionedError(Exception):
    """The topics that exist do not fit the topology; the message says which."""


def partition_counts(topology: Topology, existing: PartitionCount) -> dict[str, int]:
    """Return the partition counts of all internal topics; all source topics must exist.

    Raises ApiError(STREAMS_INVALID_TOPOLOGY), IncorrectlyPartitionedError.
    """
    decided = _repartition_counts(topology, existing)
    counts = known_counts(existing, decided)
    internal = [topic for found in topology.subtopologies.values() for topic in found.repartition_sources]
    # repartition topic -> the application names its partition count
    is_fixed = {topic.name: False for topic in internal} | {topic.name: True for topic in internal if topic.partitions}
    for _, subtopology in sorted(topology.subtopologies.items()):
        for group in subtopology.copartition_groups:
            names = {subtopology.source_topics[index] for index in group.source_topics}
            names |= {subtopology.repartition_sources[index].name for index in group.repartition_sources}
            if names:
                decided |= _copartitioned(sorted(names), is_fixed, counts)
    decided |= _changelog_counts(topology, counts)
    return decided


def known_counts(existing: PartitionCount, decided: Mapping[str, int]) -> Callable[[str], int]:
    """Return a function that counts the partitions of a topic as it is, or as it is decided to be."""

    def count(topic: str) -> int:
        found = existing(topic)
        return decided[topic] if found is None else found

    return count


# Repartition topics


def _repartition_counts(topology: Topology, existing: PartitionCount) -> dict[str, int]:
    """Decide by rule 1, in passes over the subtopologies, until a pass decides nothing."""
    subtopologies = [found for _, found in sorted(topology.subtopologies.items())]
    internal = {topic.name for found in subtopologies for topic in found.repartition_sources}
    readers: dict[str, list[int]] = {name: [] for name in internal}
    for at, subtopology in enumerate(subtopologies):
        for topic in subtopology.repartition_sources:
            readers[topic.name].append(at)
    decided = {
        topic.name: topic.partitions
        for found in subtopologies
        for topic in found.repartition_sources
        if topic.partitions
    }
    ready = [(0, at) for at, found in enumerate(subtopologies) if _source_counts(found, decided, existing)]
    scheduled = {at for _, at in ready}
    while ready:  # a heap of (pass, subtopology): each one once, when the first of its topics is known
        turn, at = heapq.heappop(ready)
        count = max(_source_counts(subtopologies[at], decided, existing))
        for sink in subtopologies[at].repartition_sinks:
            if sink not in decided:
                decided[sink] = count
                for reader in readers.get(sink, ()):
                    if reader not in scheduled:
                        scheduled.add(reader)
                        heapq.heappush(ready, (turn if reader > at else turn + 1, reader))
    if any(sink not in decided for found in subtopologies for sink in found.repartition_sinks):
        invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved."
        )
    if not internal <= decided.keys():
        invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    return decided


def _source_counts(subtopology: Subtopology, decided: Mapping[str, int], existing: PartitionCount) -> list[int]:
    """Return the counts of the topics that it reads, as far as they are known."""
    found = [decided.get(topic.name) for topic in subtopology.repartition_sources]
    found += [existing(name) for name in subtopology.source_topics]
    return [count for count in found if count is not None]


# Copartitioning


def _copartitioned(
    names: Sequence[str], is_fixed: Mapping[str, bool], counts: Callable[[str], int]
) -> Mapping[str, int]:
    """Return the counts of the repartition topics among copartitioned topics, by rule 2."""
    repartition = [name for name in names if name in is_fixed]
    fixed = [name for name in repartition if is_fixed[name]]
    if sources := [name for name in names if name not in is_fixed]:
        count = _same_count(sources, sources, counts)
    elif fixed:
        count = _same_count(fixed, repartition, counts)
    else:
        count = max(counts(name) for name in repartition)
    for name in fixed:
        if counts(name) != count:
            raise IncorrectlyPartitionedError(
                f"Number of partitions [{counts(name)}] of repartition topic [{name}] doesn't match number of "
                f"partitions [{count}] of the source topic."
            )
    return dict.fromkeys(repartition, count)


def _same_count(names: Sequence[str], shown: Sequence[str], counts: Callable[[str], int]) -> int:
    found = {counts(name) for name in names}
    if len(found) > 1:
        listed = ", ".join(f"{name}={counts(name)}" for name in shown[:COUNTS_SHOWN_MAX])
        if len(shown) > COUNTS_SHOWN_MAX:
            listed += f" and {len(shown) - COUNTS_SHOWN_MAX} more"
        raise IncorrectlyPartitionedError(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    return found.pop()


# Changelogs


def _changelog_counts(topology: Topology, counts: Callable[[str], int]) -> dict[str, int]:
    decided: dict[str, int] = {}
    for id_, subtopology in sorted(topology.subtopologies.items()):
        if not subtopology.all_sources:
            invalid(f"No source topics found for subtopology {id_}")
        number_of_tasks = max(counts(name) for name in subtopology.all_sources)
        decided |= dict.fromkeys((topic.name for topic in subtopology.changelogs), number_of_tasks)
    return decided
