"""The rules for a topology that do not depend on the topics that exist. Pure.

Source: Kafka's GroupCoordinatorService.throwIfInvalidTopology, InternalTopicManager, StreamsTopology (4.3).

Different from Apache Kafka: a topology that would make it fail with UNKNOWN_SERVER_ERROR (an index or a number outside
its range) is invalid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from barnabas.broker.coordinators.streams_groups.values import Subtopology, Topology
from barnabas.protocol.errors import ApiError, ErrorCode


def check(topology: Topology) -> None:
    """Raise ApiError(STREAMS_INVALID_TOPOLOGY or STREAMS_INVALID_TOPOLOGY_EPOCH) for an invalid topology."""
    if topology.epoch < 0:
        raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, "Topology epoch must be non-negative.")
    for subtopology in topology.subtopologies.values():
        _check_internal_topics(subtopology)
        for group in subtopology.copartition_groups:
            _check_indexes(subtopology, group.source_topics, len(subtopology.source_topics))
            _check_indexes(subtopology, group.repartition_sources, len(subtopology.repartition_sources))


def invalid(message: str) -> NoReturn:
    """Raise ApiError(STREAMS_INVALID_TOPOLOGY)."""
    raise ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _check_internal_topics(subtopology: Subtopology) -> None:
    for topic in subtopology.changelogs:
        if topic.partitions != 0:
            invalid(
                f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                f"{topic.partitions}."
            )
    for topic in (*subtopology.repartition_sources, *subtopology.changelogs):
        if topic.partitions < 0:
            invalid(f"Repartition topic {topic.name} must not have a negative partition count: {topic.partitions}.")
        if topic.replication_factor < -1:
            invalid(f"Internal topic {topic.name} has an invalid replication factor: {topic.replication_factor}.")


def _check_indexes(subtopology: Subtopology, indexes: Sequence[int], count: int) -> None:
    if any(not 0 <= index < count for index in indexes):
        invalid(f"A copartition group of subtopology {subtopology.subtopology_id} names a topic that does not exist.")
