"""kafka-share-groups and kafka-configs from the 4.3.1 jars, on share groups whose members send raw heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.support.cluster import Target
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.tool_tables import rows
from tests.support.waiting import eventually
from tests.support.wire import RawConnection

SIZE_BYTES = 4
PARTITIONS = 2
RECORDS = 5  # in each partition
TIMEOUT_S = 20
Row = dict[str, str]


class ShareGroup:
    """A share group of a cluster of one broker: its only member, and the tool."""

    def __init__(self, tools: KafkaTools, target: Target, group_id: str) -> None:
        self.id = group_id
        self._tools = tools
        self._where = ("--bootstrap-server", target.bootstrap)
        self._port = int(target.bootstrap.rpartition(":")[2])
        self.epoch = 0

    def join(self, topic: str) -> ShareGroupHeartbeatResponse:
        """Join, and wait for the partitions of the topic."""
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.id])
        eventually(
            "the group has a coordinator",
            lambda: not self._ask(find, 4, FindCoordinatorResponse).coordinators[0].error_code,
        )
        eventually("the member is in the group", lambda: self.beat(0, [topic]).error_code == ErrorCode.NONE)

        def assigned() -> ShareGroupHeartbeatResponse | None:
            answer = self.beat(self.epoch)
            has_partitions = answer.assignment is not None and answer.assignment.topic_partitions
            return answer if has_partitions else None

        answer: ShareGroupHeartbeatResponse = eventually("the member has partitions", assigned)
        return answer

    def beat(self, epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat."""
        message = ShareGroupHeartbeatRequest(
            group_id=self.id, member_id="m", member_epoch=epoch, subscribed_topic_names=topics
        )
        answer: ShareGroupHeartbeatResponse = self._ask(message, 1, ShareGroupHeartbeatResponse)
        if not answer.error_code:
            self.epoch = answer.member_epoch
        return answer

    def _ask(self, message: Any, version: int, response_type: Any) -> Any:
        frame = bytes(encode_request(RequestHeader(message.API_KEY, version, 7, "c"), message)[SIZE_BYTES:])
        with RawConnection(self._port) as connection:
            response = connection.request(frame)
        assert response is not None
        _, offset = decode_response_header(memoryview(response), message.API_KEY, version)
        return response_type.decode(memoryview(response), version, offset)

    def run(self, *arguments: str, tool: str = "kafka-share-groups") -> str:
        """Run the tool and return its output. Raises AssertionError if it fails."""
        return self._tools.run(tool, *self._where, *arguments).check().stdout

    def output(self, *arguments: str) -> str:
        """Run the tool, which may fail, and return its standard output and error."""
        result = self._tools.run("kafka-share-groups", *self._where, *arguments)
        return result.stdout + result.stderr

    def table(self, *arguments: str) -> list[Row]:
        """Return the rows of the tool's table, by its headings."""
        return rows(self.run(*arguments))

    def offsets(self) -> dict[int, tuple[str, str]]:
        """Return start offset and lag, by partition."""
        found = self.table("--describe", "--group", self.id)
        return {int(row["PARTITION"]): (row["START-OFFSET"], row["LAG"]) for row in found}


@pytest.fixture
def topic(target: Target, create_topic: Callable[..., str]) -> str:
    """A topic with records in each of its partitions."""
    name = create_topic(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(RECORDS * PARTITIONS):
        producer.produce(name, str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    return name


@pytest.fixture
def group(tools: KafkaTools, target: Target, unused_name: str) -> ShareGroup:
    """A group that nobody has used."""
    return ShareGroup(tools, target, unused_name)


def test_a_group_is_listed_and_described(group: ShareGroup, topic: str) -> None:
    assert group.join(topic).assignment is not None
    assert {row["GROUP"]: row["STATE"] for row in group.table("--list", "--state")}[group.id] == "Stable"
    assert f"{group.id} " in group.run("--list", "--share", tool="kafka-groups")
    (member,) = group.table("--describe", "--group", group.id, "--members", "--verbose")
    assert (member["CONSUMER-ID"], member["CLIENT-ID"], member["#PARTITIONS"]) == ("m", "c", str(PARTITIONS))
    assert member["ASSIGNMENT"] == f"{topic}:{','.join(map(str, range(PARTITIONS)))}"
    (state,) = group.table("--describe", "--group", group.id, "--state")
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    assert group.offsets() == dict.fromkeys(range(PARTITIONS), ("-", "-"))


def test_a_group_with_members_is_left_alone(group: ShareGroup, topic: str) -> None:
    group.join(topic)
    assert "not empty" in group.output("--delete", "--group", group.id).lower()
    assert "Error" in group.output("--reset-offsets", "--group", group.id, "--topic", topic, "--to-latest", "--execute")
    assert "Error" in group.output("--delete-offsets", "--group", group.id, "--topic", topic)
    assert group.beat(group.epoch).error_code == ErrorCode.NONE


def test_offsets_are_reset_and_deleted(group: ShareGroup, topic: str) -> None:
    group.join(topic)
    assert group.beat(-1).error_code == ErrorCode.NONE
    for where, offset in (("--to-latest", RECORDS), ("--to-earliest", 0)):
        found = group.table("--reset-offsets", "--group", group.id, "--topic", topic, where, "--execute")
        assert {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in found} == dict.fromkeys(
            range(PARTITIONS), offset
        )
        assert group.offsets() == dict.fromkeys(range(PARTITIONS), (str(offset), str(RECORDS - offset)))
    (row,) = group.table("--delete-offsets", "--group", group.id, "--topic", topic)
    assert (row["TOPIC"], row["STATUS"]) == (topic, "Successful")
    assert "has no offset information" in group.output("--describe", "--group", group.id)


def test_a_group_is_deleted(group: ShareGroup, topic: str) -> None:
    group.join(topic)
    group.beat(-1)
    assert "successful" in group.run("--delete", "--group", group.id)
    assert group.id not in group.run("--list").split()
    assert "not found" in group.output("--describe", "--group", group.id)


def test_a_group_has_its_own_settings(group: ShareGroup, topic: str) -> None:
    settings = "share.session.timeout.ms=50000,share.heartbeat.interval.ms=7000,share.assignment.interval.ms=0"
    of_group = ("--entity-type", "groups", "--entity-name", group.id)
    group.run("--alter", *of_group, "--add-config", settings, tool="kafka-configs")
    # Why eventually: the controller has answered, and its push may still be on its way to the broker.
    eventually(
        "the settings are seen",
        lambda: "share.session.timeout.ms=50000" in group.run("--describe", *of_group, tool="kafka-configs"),
    )
    assert group.join(topic).heartbeat_interval_ms == 7000
