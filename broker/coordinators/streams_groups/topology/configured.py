"""A topology as it works with the topics that exist: its tasks, and what is missing. Pure.

Theory
    ready     every topic exists, with the right number of partitions: tasks can be assigned
    problem   why it is not ready; responses to the members name it
    missing   internal topics that the broker is to create; they have a partition count

Source: Kafka's InternalTopicManager, ConfiguredTopology, ConfiguredSubtopology, TopicConfigurationException (4.3).

Different from Apache Kafka: a topology has at most TASKS_MAX tasks. They are assigned under the lock of the
group's shard, and a client that may read one topic could name it in a million subtopologies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from barnabas.broker.coordinators.streams_groups.topology.partition_counts import (
    IncorrectlyPartitionedError,
    PartitionCount,
    known_counts,
    partition_counts,
)
from barnabas.broker.coordinators.streams_groups.topology.validation import check, invalid
from barnabas.broker.coordinators.streams_groups.values import InternalTopic, Status, StatusCode, Subtopology, Topology

SHOWN_TOPICS_MAX = 3
TASKS_MAX = 50_000


@dataclass(slots=True, frozen=True)
class ConfiguredSubtopology:
    """A subtopology with the partition counts of its internal topics."""

    subtopology: Subtopology
    number_of_tasks: int  # the greatest partition count among its sources; some of them may have fewer

    @property
    def sources(self) -> frozenset[str]:
        """The topics that it reads; an application may name one many times."""
        return frozenset(self.subtopology.all_sources)

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks keep state, so that standby tasks are of use."""
        return bool(self.subtopology.changelogs)


@dataclass(slots=True, frozen=True)
class ConfiguredTopology:
    """A topology with the topics that exist; see the module."""

    topology: Topology  # with the partition counts of internal topics, as far as they are decided
    subtopologies: Mapping[str, ConfiguredSubtopology] = field(default_factory=dict)  # by id, in the order of the ids
    missing: tuple[InternalTopic, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


def configure(topology: Topology, existing: PartitionCount) -> ConfiguredTopology:
    """Return the topology with the topics that exist, whose partitions `existing` counts (None: no such topic).

    Raises ApiError(STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH).
    """
    check(topology)
    sources = {name for found in topology.subtopologies.values() for name in found.source_topics}
    absent = sorted(name for name in sources if existing(name) is None)
    if absent:
        return _failed(topology, StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_listed(absent)} are missing.")
    try:
        decided = partition_counts(topology, existing)
        subtopologies = _with_counts(topology, decided, existing)
        _check_tasks(subtopologies)
        missing = _missing(subtopologies, existing)
    except IncorrectlyPartitionedError as error:
        return _failed(topology, StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(error))
    found = Topology(topology.epoch, {id_: configured.subtopology for id_, configured in subtopologies.items()})
    problem = None
    if missing:
        names = _listed([topic.name for topic in missing])
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(found, subtopologies, missing, problem)


def _failed(topology: Topology, code: StatusCode, detail: str) -> ConfiguredTopology:
    return ConfiguredTopology(topology, problem=Status(code, detail))


def _with_counts(
    topology: Topology, decided: Mapping[str, int], existing: PartitionCount
) -> dict[str, ConfiguredSubtopology]:
    counts: Callable[[str], int] = known_counts(existing, decided)

    def counted(topics: Collection[InternalTopic]) -> tuple[InternalTopic, ...]:
        return tuple(replace(topic, partitions=topic.partitions or decided[topic.name]) for topic in topics)

    return {
        id_: ConfiguredSubtopology(
            replace(
                found, repartition_sources=counted(found.repartition_sources), changelogs=counted(found.changelogs)
            ),
            max(counts(name) for name in found.all_sources),
        )
        for id_, found in sorted(topology.subtopologies.items())
    }


def _check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
    count = sum(found.number_of_tasks for found in subtopologies.values())
    if count > TASKS_MAX:
        invalid(f"The topology has {count} tasks, and can have at most {TASKS_MAX}.")


def _missing(subtopologies: Mapping[str, ConfiguredSubtopology], existing: PartitionCount) -> tuple[InternalTopic, ...]:
    """Return the internal topics to create, by name. Raises IncorrectlyPartitionedError for one with another count."""
    internal = {
        topic.name: topic
        for found in subtopologies.values()
        for topic in (*found.subtopology.repartition_sources, *found.subtopology.changelogs)
    }
    missing = []
    for name, topic in sorted(internal.items()):
        count = existing(name)
        if count is None:
            missing.append(topic)
        elif count != topic.partitions:
            raise IncorrectlyPartitionedError(
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {count}"
            )
    return tuple(missing)


def _listed(names: Collection[str]) -> str:
    more = len(names) - SHOWN_TOPICS_MAX
    return ", ".join(list(names)[:SHOWN_TOPICS_MAX]) + (f" and {more} additional topics" if more > 0 else "")
