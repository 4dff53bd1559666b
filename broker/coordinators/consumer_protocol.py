"""What members of classic groups tell one another: the consumer's subscription and assignment, in bytes and back.

Format (big-endian; an array is an int32 count and its items, a string an int16 size and UTF-8)
    subscription  int16 version, topics [string], user data (int32 size, -1: none)
                  v1+: owned [topic, [int32 partition]]   v2+: int32 generation   v3+: rack (size -1: none)
    assignment    int16 version, assigned [topic, [int32 partition]], user data
A newer version begins like the newest known one, so it is read as that.

Source: Kafka's ConsumerProtocol, ConsumerProtocolSubscription, ConsumerProtocolAssignment (4.3).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.protocol.errors import MalformedMessageError

VERSION_MAX = 3
OWNED_FROM, GENERATION_FROM, RACK_FROM = 1, 2, 3


class Subscription(NamedTuple):
    """What a member wants, and what it owned when it said so (by topic)."""

    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]] = {}
    rack_id: str | None = None


class ConsumerAssignment(NamedTuple):
    """What a member gets, by topic."""

    partitions: Mapping[str, frozenset[int]]
    user_data: bytes | None = None


class _Reader:
    """Takes values from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise MalformedMessageError("a consumer's subscription or assignment is cut short")
        found, self._at = self._data[self._at : end], end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def count(self) -> int:
        count = self.number(4)
        if count < 0:
            raise MalformedMessageError("a consumer's subscription or assignment lacks an array")
        return count

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def optional_bytes(self, size_bytes: int) -> bytes | None:
        size = self.number(size_bytes)
        return None if size < 0 else self.take(size)

    def partitions(self) -> dict[str, frozenset[int]]:
        found: dict[str, frozenset[int]] = {}
        for _ in range(self.count()):
            topic = self.text()
            found[topic] = frozenset(self.number(4) for _ in range(self.count()))
        return found


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment as this side writes it. Raises MalformedMessageError."""
    version = _Reader(data).number(2)
    if version < 0:
        raise MalformedMessageError(f"a consumer's protocol of version {version}")
    return min(version, VERSION_MAX)


def answer_version(data: bytes) -> int:
    """The version in which an assignment is written to who sent this subscription; the first if it cannot be read."""
    try:
        return version_of(data)
    except MalformedMessageError:
        return 0


def read_subscription(data: bytes) -> Subscription:
    """Read what a member says in JoinGroup. Raises MalformedMessageError."""
    version, reader = version_of(data), _Reader(data)
    reader.take(2)
    try:
        topics = frozenset(reader.text() for _ in range(reader.count()))
        reader.optional_bytes(4)
        owned = reader.partitions() if version >= OWNED_FROM else {}
        if version >= GENERATION_FROM:
            reader.number(4)
        rack = reader.optional_bytes(2) if version >= RACK_FROM else None
        return Subscription(topics, owned, rack.decode() if rack else None)
    except UnicodeDecodeError as error:
        raise MalformedMessageError(str(error)) from None


def read_assignment(data: bytes) -> ConsumerAssignment:
    """Read what a leader dealt out. Raises MalformedMessageError."""
    version_of(data)
    reader = _Reader(data)
    reader.take(2)
    try:
        partitions = reader.partitions()
    except UnicodeDecodeError as error:
        raise MalformedMessageError(str(error)) from None
    return ConsumerAssignment(partitions, reader.optional_bytes(4))


def write_assignment(partitions: Mapping[str, frozenset[int]], version: int) -> bytes:
    """Write what SyncGroup tells a member; all versions are alike."""
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic, ids in partitions.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(ids)}i", len(name), name, len(ids), *sorted(ids)))
    return b"".join((*parts, struct.pack(">i", -1)))
