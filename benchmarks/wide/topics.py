"""Many partitions, as topics of at most 1,000 each: creating them, and who leads them according to a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.common.clock import Clock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from benchmarks.quorum.topics import CREATE_VERSION, METADATA_VERSION, TopicError
from tests.support.waiting import eventually

LARGEST: Final = 1_000  # partitions of a topic
TIMEOUT_MS: Final = 600_000
PRODUCE_VERSION: Final = 9  # it has topic names, not ids


def split(partitions: int) -> dict[str, int]:
    """Return the topics that have this number of partitions together: each name with its number."""
    sizes = [LARGEST] * (partitions // LARGEST) + [partitions % LARGEST] * (partitions % LARGEST > 0)
    return {f"wide-{number}": size for number, size in enumerate(sizes)}


def create(to: NodeConnection, topics: Mapping[str, int], replicas: int) -> None:
    """Create the topics, each in a request of its own, one after another; raises TopicError."""
    for name, partitions in topics.items():
        new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        response = to.send(CreateTopicsRequest(topics=[new], timeout_ms=TIMEOUT_MS), CREATE_VERSION)
        codes = [topic.error_code for topic in response.topics]
        if codes != [ErrorCode.NONE]:
            raise TopicError(f"topic {name} of {partitions} partitions was answered with {codes}")


def leaders(to: NodeConnection, name: str) -> list[int]:
    """Return the leader of each partition that a broker lists, -1 without one; empty if it does not know the topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = to.send(request, METADATA_VERSION).topics
    return [partition.leader_id for partition in topic.partitions] if topic.error_code == ErrorCode.NONE else []


def are_led(found: Iterable[int], partitions: int, gone: int | None = None) -> bool:
    """Return whether all partitions have a leader, and none has the one that is gone."""
    listed = list(found)
    return len(listed) == partitions and all(leader >= 0 and leader != gone for leader in listed)


def await_led(
    brokers: Iterable[NodeConnection],
    topics: Mapping[str, int],
    every_ms: int,
    gone: int | None = None,
) -> None:
    """Wait until each broker lists a leader of each partition that is not the one that is gone.

    Raises WaitTimeoutError.

    A topic that is led is not asked for again, so that asking costs little.
    """
    for broker in brokers:
        for name, partitions in topics.items():
            eventually(
                f"{name} is led",
                lambda b=broker, n=name, p=partitions: are_led(leaders(b, n), p, gone),  # type: ignore[misc]
                TIMEOUT_MS,
                every_ms,
            )


def is_acknowledged(to: NodeConnection, topic: str, partition: int, clock: Clock) -> bool:
    """Produce one record with acks=1 and return whether the broker acknowledges it; False while it does not run."""
    batch = build_batch([SimpleRecord(clock.wall_ms(), None, b"v")])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    try:
        response = to.send(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)
    except NodeConnectionError:
        return False
    return bool(response.responses[0].partition_responses[0].error_code == ErrorCode.NONE)
