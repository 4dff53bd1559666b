"""The embedded consumer protocol: the subscriptions and assignments inside JoinGroup and SyncGroup.

Only members of classic groups exchange them, so the broker needs them for two things: to know the topics of a classic
group, and for an online migration. The rows are in `barnabas.protocol.data.consumer_protocol`; an int16 version comes
before each message. A newer version starts with the fields of the newest known one, so it is read as that.

Source: Kafka's ConsumerProtocol (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.protocol.data.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from barnabas.protocol.errors import MalformedMessageError

VERSION_MAX: Final = ConsumerProtocolSubscription.MAX_VERSION
VERSION_BYTES: Final = 2

TopicPartitions = ConsumerProtocolSubscriptionTopicPartition | ConsumerProtocolAssignmentTopicPartition


class Subscription(NamedTuple):
    """A member's subscription, and the partitions that it owned when it joined (by topic)."""

    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]] = {}
    rack_id: str | None = None


class ConsumerAssignment(NamedTuple):
    """The partitions that the leader assigned to a member, by topic."""

    partitions: Mapping[str, frozenset[int]]
    user_data: bytes | None = None


def version_of(data: bytes) -> int:
    """Return the version of a subscription or an assignment, at most the newest known. Raises MalformedMessageError."""
    if len(data) < VERSION_BYTES:
        raise MalformedMessageError("a consumer's subscription or assignment is cut short")
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise MalformedMessageError(f"a consumer's protocol of version {version}")
    return min(version, VERSION_MAX)


def answer_version(subscription: bytes) -> int:
    """Return the version of the assignment for a member with this subscription; 0 if it cannot be read."""
    try:
        return version_of(subscription)
    except MalformedMessageError:
        return 0


def read_subscription(data: bytes) -> Subscription:
    """Decode the subscription in a JoinGroup. Raises MalformedMessageError."""
    message = ConsumerProtocolSubscription.decode(data, version_of(data), VERSION_BYTES)
    return Subscription(frozenset(message.topics), _by_topic(message.owned_partitions), message.rack_id or None)


def subscribed_topics(data: bytes) -> set[str] | None:
    """Return the topics of a subscription of any version, which starts like version 0; None if it cannot be read."""
    try:
        return set(ConsumerProtocolSubscription.decode(data, 0, VERSION_BYTES).topics)
    except MalformedMessageError:
        return None


def read_assignment(data: bytes) -> ConsumerAssignment:
    """Decode an assignment of a leader. Raises MalformedMessageError."""
    message = ConsumerProtocolAssignment.decode(data, version_of(data), VERSION_BYTES)
    return ConsumerAssignment(_by_topic(message.assigned_partitions), message.user_data)


def write_assignment(partitions: Mapping[str, frozenset[int]], version: int) -> bytes:
    """Encode the assignment for a SyncGroup; all versions have the same fields."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=sorted(ids))
            for topic, ids in partitions.items()
        ]
    )
    return version.to_bytes(VERSION_BYTES, "big", signed=True) + message.encode(version)


def _by_topic(rows: Iterable[TopicPartitions]) -> dict[str, frozenset[int]]:
    return {row.topic: frozenset(row.partitions) for row in rows}
