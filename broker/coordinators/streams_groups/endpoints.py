"""Where interactive queries find the state of a partition: the endpoints of a streams group's members. Pure.

A member may name an endpoint. Every member learns which partitions are behind each endpoint, with the first heartbeat
after a member with an endpoint has got other tasks.

Source: Kafka's EndpointToPartitionsManager, StreamsGroup.buildEndpointToPartitions (4.3).

Different from Apache Kafka: while the topology does not fit the topics, there are endpoints without partitions (Kafka
answers UNKNOWN_SERVER_ERROR); a partition that a topic does not have is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.streams_groups.values import EndpointPartitions, Member, Partitions

if TYPE_CHECKING:
    from barnabas.broker.coordinators.streams_groups.topology.configured import ConfiguredTopology


def endpoints_of(
    members: Iterable[Member], configured: ConfiguredTopology, partition_count: Callable[[str], int | None]
) -> list[EndpointPartitions]:
    """Return the endpoints of these members, as far as they have one."""
    found = []
    for member in members:
        if member.user_endpoint is not None:
            tasks = member.assigned.without_epochs()
            found.append(
                EndpointPartitions(
                    member.user_endpoint,
                    _partitions(tasks.active, configured, partition_count),
                    _partitions(tasks.standby, configured, partition_count),
                )
            )
    return found


def _partitions(
    tasks: Partitions, configured: ConfiguredTopology, partition_count: Callable[[str], int | None]
) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = {}
    for id_, partitions in sorted(tasks.items()):
        subtopology = configured.subtopologies.get(id_)
        ordered = sorted(partitions)
        for topic in () if subtopology is None else sorted(subtopology.sources):
            found[topic] = ordered[: bisect_left(ordered, partition_count(topic) or 0)]
    return found
