"""Topologies of streams groups in requests: names, values, and topics to be created.

Source: Kafka's KafkaApis.handleStreamsGroupHeartbeat, StreamsCoordinatorRecordHelpers, InternalTopicManager (4.3).

Different from Apache Kafka: a message lists only some of very many names; a subtopology that is there twice makes the
topology invalid (Kafka answers UNKNOWN_SERVER_ERROR); so do more than PARTS_MAX subtopologies, topics and copartitioned
topics, since the topology is compared with the cluster under the lock of the group's shard; and many missing topics are
created by several requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.streams_groups import values as v
from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.common.topic_names import invalid_reason
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from barnabas.protocol.messages import k88_streams_group_heartbeat as wire

NAMES_SHOWN_MAX: Final = 10
PARTS_MAX: Final = 20_000
DEFAULT_REPLICATION_FACTOR: Final = -1
#: The most that one heartbeat has created; the next ones go on. The controller refuses more than 10,000 records.
CREATED_TOPICS_MAX: Final = 500
CREATED_RECORDS_MAX: Final = 5_000


def names(topology: wire.Topology) -> list[str]:
    """Return the topics that a topology names, each once."""
    found: dict[str, None] = {}
    for subtopology in topology.subtopologies:
        found.update(dict.fromkeys(subtopology.source_topics))
        found.update(dict.fromkeys(subtopology.repartition_sink_topics))
        found.update(dict.fromkeys(topic.name for topic in subtopology.repartition_source_topics))
        found.update(dict.fromkeys(topic.name for topic in subtopology.state_changelog_topics))
    return list(found)


def check_size(topology: wire.Topology) -> None:
    """Raise ApiError(STREAMS_INVALID_TOPOLOGY) for a topology with too many parts."""
    count = 0
    for found in topology.subtopologies:
        count += 1 + len(found.source_topics) + len(found.state_changelog_topics)
        count += len(found.repartition_sink_topics) + len(found.repartition_source_topics)
        for group in found.copartition_groups:
            count += 1 + len(group.source_topics) + len(group.repartition_source_topics)
        if count > PARTS_MAX:
            raise _invalid(f"A topology can have at most {PARTS_MAX} subtopologies and topics in all.")


def check_names(topology: wire.Topology) -> None:
    """Raise ApiError(STREAMS_INVALID_TOPOLOGY) unless every topic could be an application's."""
    named = names(topology)
    internal = [name for name in named if name in INTERNAL_TOPICS]
    if internal:
        raise _invalid(f"Use of Kafka internal topics {listed(internal)} in a Kafka Streams topology is prohibited.")
    illegal = [name for name in named if invalid_reason(name) is not None]
    if illegal:
        raise _invalid(f"Topic names {listed(illegal)} are not valid topic names.")


def listed(topics: Sequence[str]) -> str:
    """Return names for a message, as Kafka lists them."""
    more = len(topics) - NAMES_SHOWN_MAX
    return ",".join(topics[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def of_request(topology: wire.Topology) -> v.Topology:
    """Return the topology that a member sent. Raises ApiError(STREAMS_INVALID_TOPOLOGY)."""
    found = {each.subtopology_id: _subtopology(each) for each in topology.subtopologies}
    if len(found) < len(topology.subtopologies):
        raise _invalid("A subtopology is there twice.")
    return v.Topology(topology.epoch, found)


def _subtopology(found: wire.Subtopology) -> v.Subtopology:
    return v.Subtopology(
        found.subtopology_id,
        tuple(found.source_topics),
        tuple(found.source_topic_regex),
        tuple(_internal(topic) for topic in found.state_changelog_topics),
        tuple(found.repartition_sink_topics),
        tuple(_internal(topic) for topic in found.repartition_source_topics),
        tuple(
            v.CopartitionGroup(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in found.copartition_groups
        ),
    )


def _internal(topic: wire.TopicInfo) -> v.InternalTopic:
    configs = tuple((config.key, config.value) for config in topic.topic_configs)
    return v.InternalTopic(topic.name, topic.partitions, topic.replication_factor, configs)


def first_to_create(missing: Iterable[v.InternalTopic]) -> list[v.InternalTopic]:
    """Return the missing topics that one request to the controller creates: at least one, if there are any.

    Why not all: each small heartbeat could have thousands of topics created, or refused.
    """
    found: list[v.InternalTopic] = []
    count = 0
    for topic in missing:
        count += 1 + len(topic.configs) + topic.partitions
        if found and (len(found) >= CREATED_TOPICS_MAX or count > CREATED_RECORDS_MAX):
            break
        found.append(topic)
    return found


def creatable(topic: v.InternalTopic) -> CreatableTopic:
    """Return the request for an internal topic."""
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or DEFAULT_REPLICATION_FACTOR,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in dict(topic.configs).items()],
    )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
