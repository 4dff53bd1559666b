"""The admin of a simulated cluster: creates topics, and meddles with them while others work.

Threads: a client has one task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.simulation.load.clients.client import Address, Client

CREATE_TOPICS_VERSION: Final = 7
DELETE_TOPICS_VERSION: Final = 6
DELETE_RECORDS_VERSION: Final = 2
CREATE_PARTITIONS_VERSION: Final = 3
ELECT_LEADERS_VERSION: Final = 2
ALTER_CONFIGS_VERSION: Final = 1
REASSIGNMENTS_VERSION: Final = 1

TIMEOUT_MS: Final = 5_000
TOPIC: Final = 2  # the type of a config's resource
SET: Final = 0
PARTITIONS_MAX: Final = 6
#: The end of a partition, for DeleteRecords.
HIGH_WATERMARK: Final = -1


class Admin(Client):
    """Creates topics."""

    def create_topic(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic, however often it has to be tried."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in config.items()],
        )
        while True:
            answer = self.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), CREATE_TOPICS_VERSION)
            error = answer.topics[0].error_code
            if error == ErrorCode.TOPIC_ALREADY_EXISTS or not self.may_pass(error, f"CreateTopics of {topic}"):
                return


class Meddler(Admin):
    """Does one admin request after the other, of the seed's choice, on the topics of the load and on one of its own.

    Each request is sent once: whether one without an answer was carried out does not matter to the load.
    """

    def __init__(
        self, name: str, bootstrap: list[Address], draw: Callable[[int], int], pause_s: float, brokers: int,
        topics: Mapping[str, int], trimmed: Collection[str],
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap)
        self._draw = draw  # a random number below its argument
        self._pause_s = pause_s
        self._brokers = brokers
        self._topics = dict(topics)  # -> number of partitions
        self._trimmed = sorted(trimmed)  # topics whose records may be deleted
        self._own_partitions = 0  # of its own topic; 0: it is not there, as far as it knows
        self._between = threading.Event()
        self.told: list[str] = []  # what it did, in words
        self.low_watermarks: dict[tuple[str, int], int] = {}  # what DeleteRecords was answered

    def run(self) -> None:
        """Meddle until it is asked to stop."""
        deeds = [self._create, self._delete, self._add_partitions, self._configure, self._elect, self._reassign]
        if self._trimmed:
            deeds.append(self._delete_records)
        while not self.is_stopping:
            self._between.wait(self._pause_s * self._draw(20) / 10)
            deeds[self._draw(len(deeds))]()
        self.close()

    def _create(self) -> None:
        partitions = 1 + self._draw(3)
        wanted = CreatableTopic(name="own", num_partitions=partitions, replication_factor=min(3, self._brokers))
        answer = self.ask_any(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), CREATE_TOPICS_VERSION)
        self._judge(f"create own with {partitions}", answer.topics[0].error_code, ErrorCode.TOPIC_ALREADY_EXISTS)
        self._own_partitions = partitions

    def _delete(self) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="own", topic_id=bytes(16))], timeout_ms=TIMEOUT_MS)
        answer = self.ask_any(request, DELETE_TOPICS_VERSION)
        self._judge("delete own", answer.responses[0].error_code)
        self._own_partitions = 0

    def _add_partitions(self) -> None:
        count = self._own_partitions + 1
        if not 1 < count <= PARTITIONS_MAX:
            return
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="own", count=count, assignments=None)], timeout_ms=TIMEOUT_MS
        )
        answer = self.ask_any(request, CREATE_PARTITIONS_VERSION)
        self._judge(f"{count} partitions of own", answer.results[0].error_code, ErrorCode.INVALID_PARTITIONS)
        self._own_partitions = count

    def _configure(self) -> None:
        topic, _ = self._some_topic()
        name, value = [
            ("max.message.bytes", str(500_000 + self._draw(500_000))),
            # Why not flush.messages: brokers that flush each batch would stop that, and may all lose power at once.
            ("flush.ms", str(100 + self._draw(10_000))),
            ("segment.ms", str(10_000 + self._draw(60_000))),
            ("index.interval.bytes", str(self._draw(4_096))),
        ][self._draw(4)]
        resource = AlterConfigsResource(
            resource_type=TOPIC, resource_name=topic,
            configs=[AlterableConfig(name=name, config_operation=SET, value=value)],
        )  # fmt: skip
        answer = self.ask_any(IncrementalAlterConfigsRequest(resources=[resource]), ALTER_CONFIGS_VERSION)
        self._judge(f"{name}={value} for {topic}", answer.responses[0].error_code)

    def _elect(self) -> None:
        topic, partition = self._some_topic()
        request = ElectLeadersRequest(
            election_type=0,
            topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
            timeout_ms=TIMEOUT_MS,
        )
        answer = self.ask_any(request, ELECT_LEADERS_VERSION)
        if answer.error_code:
            self._judge(f"elect {topic}-{partition}", answer.error_code)
            return
        error = next((each.error_code for it in answer.replica_election_results for each in it.partition_result), 0)
        self._judge(
            f"elect {topic}-{partition}",
            error,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        )

    def _reassign(self) -> None:
        topic, partition = self._some_topic()
        brokers = list(range(self._brokers))
        replicas: list[int] | None = [
            brokers.pop(self._draw(len(brokers))) for _ in range(min(self._brokers, 2 + self._draw(2)))
        ]
        if not self._draw(6):
            replicas = None  # cancels the one in progress
        wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=[wanted])]
        )
        answer = self.ask_any(request, REASSIGNMENTS_VERSION)
        error = answer.error_code or answer.responses[0].partitions[0].error_code
        self._judge(
            f"replicas {replicas} for {topic}-{partition}",
            error,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # a broker is fenced
        )

    def _delete_records(self) -> None:
        topic = self._trimmed[self._draw(len(self._trimmed))]
        partition = self._draw(self._topics[topic])
        asked = DeleteRecordsPartition(partition_index=partition, offset=HIGH_WATERMARK)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=TIMEOUT_MS // 2
        )
        answer = self.ask_leader(topic, partition, request, DELETE_RECORDS_VERSION)
        if answer is None:
            return
        found = answer.topics[0].partitions[0]
        self._judge(f"delete records of {topic}-{partition}", found.error_code)
        if not found.error_code:
            before = self.low_watermarks.get((topic, partition), 0)
            self.low_watermarks[(topic, partition)] = max(before, found.low_watermark)

    def _some_topic(self) -> tuple[str, int]:
        names = sorted(self._topics)
        topic = names[self._draw(len(names))]
        return topic, self._draw(self._topics[topic])

    def _judge(self, deed: str, error: int, *also: Any) -> None:
        """Note a deed; raises UnexpectedAnswerError for an error that a correct cluster does not answer."""
        self.told.append(f"{deed}: {ErrorCode(error).name}")
        self.may_pass(error, deed, also)
