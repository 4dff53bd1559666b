"""Topics that are created and deleted through a broker, and what each broker knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.cluster import Node
from barnabas.common.clock import Clock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.k20_delete_topics import DeleteTopicsRequest
from benchmarks.quorum.clusters import connection
from tests.support.waiting import eventually

PARTITIONS: Final = 6
REPLICATION_FACTOR: Final = 3
TIMEOUT_MS: Final = 120_000
CREATE_VERSION: Final = 5
DELETE_VERSION: Final = 5
METADATA_VERSION: Final = 9
#: A request that was sent twice may find that the first one had its effect.
DONE: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
#: What a broker answers while no controller is active.
AGAIN: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)


class TopicError(AssertionError):
    """A topic was not created or deleted."""


def create(to: NodeConnection, names: Sequence[str], partitions: int = PARTITIONS) -> list[int]:
    """Create topics in one request; return the error codes."""
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=REPLICATION_FACTOR) for name in names
    ]
    response = to.send(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), CREATE_VERSION)
    return [topic.error_code for topic in response.topics]


def must_create(to: NodeConnection, names: Sequence[str], partitions: int = PARTITIONS) -> None:
    """Create topics in one request; raises TopicError."""
    codes = create(to, names, partitions)
    if len(codes) != len(names) or any(codes):
        raise TopicError(f"{len(codes)} of {len(names)} topics were answered, with errors {sorted(set(codes))}")


def create_anyway(broker: Node, name: str, clock: Clock) -> None:
    """Create a topic by a broker, again and again until a controller has decided; raises TopicError."""
    end_ms = clock.monotonic_ms() + TIMEOUT_MS
    with connection(broker, TIMEOUT_MS) as to:
        while clock.monotonic_ms() < end_ms:
            try:
                (code,) = create(to, [name], 1)
            except NodeConnectionError:
                continue
            if code in DONE:
                return
            if code not in AGAIN:
                raise TopicError(f"topic {name} was answered with error {code}")
    raise TopicError(f"topic {name} was not created in time")


def delete(to: NodeConnection, names: Sequence[str]) -> None:
    """Delete topics in one request; raises TopicError."""
    response = to.send(DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS), DELETE_VERSION)
    codes = {topic.error_code for topic in response.responses}
    if codes != {ErrorCode.NONE}:
        raise TopicError(f"topics were not deleted: errors {sorted(codes)}")


def are_known(to: NodeConnection, names: Sequence[str]) -> bool:
    """Return whether a broker lists these topics, with a leader of each partition."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    return all(
        topic.error_code == ErrorCode.NONE
        and len(topic.partitions) == PARTITIONS
        and all(partition.leader_id >= 0 for partition in topic.partitions)
        for topic in to.send(request, METADATA_VERSION).topics
    )


def await_known(brokers: Sequence[Node], names: Sequence[str]) -> None:
    """Wait until every broker lists all of these topics; the last one is asked for first, since it is cheap."""
    for broker in brokers:
        with connection(broker, TIMEOUT_MS) as to:
            for asked in (names[-1:], names):
                eventually(f"{broker.name} knows", lambda to=to, asked=asked: are_known(to, asked), TIMEOUT_MS)  # type: ignore[misc]


def await_unknown(brokers: Sequence[Node], names: Sequence[str]) -> None:
    """Wait until no broker lists any of these topics."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    gone = set(names)
    for broker in brokers:
        with connection(broker, TIMEOUT_MS) as to:

            def is_unknown(to: NodeConnection = to) -> bool:
                return gone.isdisjoint(topic.name for topic in to.send(request, METADATA_VERSION).topics)

            eventually(f"{broker.name} has forgotten", is_unknown, TIMEOUT_MS)
