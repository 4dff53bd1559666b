"""Reads a cluster's content: records of topics (`topic_reader`), committed offsets and states of groups (librdkafka).

A method that waits raises AssertionError after its timeout, with the state it saw last. Reading commits no offset and
joins no group.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import SystemClock
from barnabas.common.deadline import Deadline
from barnabas.testing.records import Matcher, Record, difference, unmatched
from barnabas.testing.topic_reader import CLIENT_ID, TopicReader

if TYPE_CHECKING:
    from barnabas.client.client_properties import ClientProperties
    from barnabas.client.security import ClientSecurity

REQUEST_TIMEOUT_S: Final = 15.0
PAUSE_S: Final = 0.02

_silent = logging.getLogger("barnabas.testing.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

Assignments = dict[str, list[tuple[str, int]]]


class Reader:
    """Reads and administers one cluster. Any thread may use it: the admin client is shared, each read has its own."""

    def __init__(self, bootstrap: str, properties: ClientProperties | None = None) -> None:
        self._properties = properties  # fixed before start; how it connects to a secured cluster
        self._bootstrap = bootstrap  # fixed before start
        self._clock = SystemClock()  # fixed before start
        self._admin = AdminClient(self._settings())  # fixed before start

    # Topics

    def create_topic(self, name: str, partitions: int, replication_factor: int, config: dict[str, str]) -> None:
        """Create a topic and return when all its partitions have leaders. Raises KafkaException."""
        topic = NewTopic(name, partitions, replication_factor, config=config)
        self._admin.create_topics([topic], operation_timeout=REQUEST_TIMEOUT_S)[name].result(REQUEST_TIMEOUT_S)

        def is_there() -> bool:
            return len(self.partitions(name)) == partitions

        self._until(REQUEST_TIMEOUT_S, is_there, lambda: f"{name} has no leaders")

    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises KafkaException."""
        self._admin.delete_topics([name], operation_timeout=REQUEST_TIMEOUT_S)[name].result(REQUEST_TIMEOUT_S)

    def partitions(self, topic: str) -> list[int]:
        """The partitions that have a leader; empty if the topic does not exist."""
        found = self._admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        return sorted(number for number, partition in found.partitions.items() if partition.leader >= 0)

    def set_config(self, resource: tuple[str, str], entries: dict[str, str]) -> None:
        """Change settings of a ("topic" or "broker", name), keeping the others. Raises KafkaException."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

        kind, name = resource
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in entries.items()
        ]
        altered = ConfigResource(ResourceType[kind.upper()], name, incremental_configs=changes)
        self._admin.incremental_alter_configs([altered])[altered].result(REQUEST_TIMEOUT_S)

    # Records

    def records(self, topic: str, *, count: int, timeout_s: float, committed_only: bool) -> list[Record]:
        """All records of a topic, by partition and offset, once there are at least `count`. Raises AssertionError."""
        found: list[Record] = []
        for found in self._readings(topic, timeout_s, committed_only):
            if len(found) >= count:
                return found
        raise AssertionError(f"expected {count} records within {timeout_s:g} s. {difference(topic, (), (), found)}")

    def assert_produced(
        self, topic: str, matchers: Sequence[Matcher], *, exactly: bool, timeout_s: float, committed_only: bool
    ) -> list[Record]:
        """Wait until each matcher matches a record of its own; with `exactly`, no others may exist.

        Returns all records; raises AssertionError.
        """
        found: list[Record] = []
        missing: list[Matcher] = list(matchers)
        left: list[Record] = []
        for found in self._readings(topic, timeout_s, committed_only):
            missing, left = unmatched(matchers, found)
            if not missing:
                break
        if missing or (exactly and left):
            raise AssertionError(difference(topic, missing, left if exactly else (), found))
        return found

    def _readings(self, topic: str, timeout_s: float, committed_only: bool) -> Iterator[list[Record]]:
        """Yield the topic's records repeatedly until time is up, at least once."""
        deadline = Deadline(self._clock, timeout_s * 1000)
        connect = NodeConnection if self._properties is None else partial(NodeConnection, security=self._security)
        with TopicReader(self._bootstrap, topic, committed_only=committed_only, connect=connect) as reader:
            while True:
                is_whole = reader.read()
                is_late = deadline.is_expired()
                if is_whole or is_late:
                    yield reader.records
                if is_late:
                    return
                _pause()

    # Groups

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group, by topic and partition; empty if there are none."""
        request = ConsumerGroupTopicPartitions(group)
        found = self._admin.list_consumer_group_offsets([request])[group].result(REQUEST_TIMEOUT_S)
        return {
            (each.topic, each.partition): each.offset
            for each in found.topic_partitions
            if each.error is None and each.offset >= 0
        }

    def wait_stable(self, group: str, *, members: int | None, timeout_s: float) -> Assignments:
        """Wait until a group is stable with that many members (None: any); return their partitions by member id.

        Raises AssertionError.
        """
        state, assignments = "unknown", Assignments()

        def is_stable() -> bool:
            nonlocal state, assignments
            state, assignments = self._describe(group)
            has_members = bool(assignments) if members is None else len(assignments) == members
            return state == ConsumerGroupState.STABLE.name and has_members

        def complaint() -> str:
            wanted = "members" if members is None else f"{members} members"
            found = f"{state} with {len(assignments)}: {assignments}"
            return f"group {group} is not STABLE with {wanted}, but {found}"

        self._until(timeout_s, is_stable, complaint)
        return assignments

    def _describe(self, group: str) -> tuple[str, Assignments]:
        try:
            found = self._admin.describe_consumer_groups([group])[group].result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            return error.args[0].name(), {}
        return found.state.name, {
            member.member_id: sorted((each.topic, each.partition) for each in member.assignment.topic_partitions)
            for member in found.members
        }

    def _until(self, timeout_s: float, is_true: Callable[[], bool], complaint: Callable[[], str]) -> None:
        deadline = Deadline(self._clock, timeout_s * 1000)
        while not is_true():
            if deadline.is_expired():
                raise AssertionError(f"timeout after {timeout_s:g} s: {complaint()}")
            _pause()

    def _settings(self, **extra: object) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "client.id": CLIENT_ID,
            "log_level": 0,
            "logger": _silent,
            "reconnect.backoff.ms": 20,
            "retry.backoff.ms": 20,
            **({} if self._properties is None else self._properties.librdkafka()),
            **extra,
        }

    @cached_property
    def _security(self) -> ClientSecurity | None:
        return None if self._properties is None else self._properties.security()


def _pause() -> None:
    select.select([], [], [], PAUSE_S)
