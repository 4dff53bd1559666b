"""An observer that requests the state of groups from brokers, by our own requests, and records the offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.client.connection import Connect
from barnabas.cluster import Node
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.churn.members import PARTITIONS, TOPIC, Group
from tests.support.coordinators import ask, find_coordinator
from tests.support.history import Worker

TURN_S = 0.05
FETCH_VERSION, DESCRIBE_VERSION, CONSUMER_DESCRIBE_VERSION = 9, 6, 1


class GroupClient:
    """Sends requests to the coordinator of a group, which may not answer. Used by one thread."""

    def __init__(self, brokers: Sequence[Node], connect: Connect) -> None:
        self._brokers = brokers
        self._connect = connect

    def coordinator_of(self, group: str) -> Node | None:
        """The broker that coordinates the group, according to the first broker that answers."""
        return find_coordinator(self._brokers, group, connect=self._connect)

    def offsets(self, group: str) -> dict[int, int] | None:
        """The committed offsets of all partitions (-1: none); None without a response."""
        topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])])
        answer = self._ask_coordinator(group, request, FETCH_VERSION)
        if answer is None or answer.groups[0].error_code:
            return None
        return {row.partition_index: row.committed_offset for row in answer.groups[0].topics[0].partitions}

    def describe(self, group: Group) -> tuple[str, list[str]]:
        """The group's state and its members' client ids; ("", []) without a response."""
        request: Any
        if group.kind.is_classic:
            request, version = DescribeGroupsRequest(groups=[group.name]), DESCRIBE_VERSION
        else:
            request, version = ConsumerGroupDescribeRequest(group_ids=[group.name]), CONSUMER_DESCRIBE_VERSION
        answer = self._ask_coordinator(group.name, request, version)
        if answer is None or answer.groups[0].error_code:
            return "", []
        return answer.groups[0].group_state, [member.client_id for member in answer.groups[0].members]

    def _ask_coordinator(self, group: str, request: Any, version: int) -> Any:
        coordinator = self.coordinator_of(group)
        # Why: a broker that was paused may return its old state for a moment, as Apache Kafka's does.
        if coordinator is None or coordinator.paused:
            return None
        answer = ask(coordinator, request, version, self._connect)
        return None if coordinator.paused or self.coordinator_of(group) is not coordinator else answer


class Observer(Worker):
    """Requests the committed offsets of all groups repeatedly."""

    def __init__(self, client: GroupClient, groups: Sequence[Group]) -> None:
        super().__init__("observer")
        self._client = client  # owner: the worker's thread, between start and stop
        self._groups = groups
        self.answers = 0  # owner: the worker's thread

    def _turn(self) -> None:
        for group in self._groups:
            if not self._stopping.wait(TURN_S):
                self.observe(group)

    def _close(self) -> None:
        """No connection is kept between two requests."""

    def observe(self, group: Group) -> bool:
        """Send one request; return False without a response."""
        since = group.known()
        offsets = self._client.offsets(group.name)
        if offsets is None:
            return False
        group.reported(since, offsets)
        self.answers += 1
        return True
