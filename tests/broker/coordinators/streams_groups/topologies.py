"""Topologies for tests."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.coordinators.streams_groups.values import CopartitionGroup, InternalTopic, Subtopology, Topology


def topics(found: str | Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
    """Return internal topics; "r s=5" stands for two, the second one with five partitions."""
    if not isinstance(found, str):
        return tuple(found)
    pairs = (word.partition("=") for word in found.split())
    return tuple(InternalTopic(name, int(count or 0)) for name, _, count in pairs)


def subtopology(
    id_: str, sources: str = "", *, reads: str | Iterable[InternalTopic] = "", writes: str = "", changelogs: str = "",
    together: Iterable[str] = (),
) -> Subtopology:  # fmt: skip
    """Return a subtopology; each string of `together` names copartitioned topics."""
    source_topics, repartition = tuple(sources.split()), topics(reads)
    names = [topic.name for topic in repartition]
    groups = tuple(
        CopartitionGroup(
            tuple(source_topics.index(name) for name in group.split() if name in source_topics),
            repartition_sources=tuple(names.index(name) for name in group.split() if name in names),
        )
        for group in together
    )
    return Subtopology(id_, source_topics, (), topics(changelogs), tuple(writes.split()), repartition, groups)


def topology(*subtopologies: Subtopology, epoch: int = 1) -> Topology:
    """Return a topology of these subtopologies."""
    return Topology(epoch, {found.subtopology_id: found for found in subtopologies})
