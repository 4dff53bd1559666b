"""Stories of deliveries to share groups as raw ShareFetch and ShareAcknowledge requests, step by step, as lines.

`python -m tests.compare.share.delivery_stories` runs them on Apache Kafka and writes
tests/data/apache-kafka-share-deliveries.txt. The tests compare Barnabas's transcript with this file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import k32_describe_configs as describe_wire
from barnabas.protocol.messages import k78_share_fetch as fetch_wire
from barnabas.protocol.messages import k79_share_acknowledge as acknowledge_wire
from barnabas.protocol.messages import k83_initialize_share_group_state as initialize
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.records.batch import SimpleRecord, build_batch, iter_headers
from barnabas.protocol.schema import Request
from tests.compare.conversation import CLIENT_ID, Conversation
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.waiting import eventually
from tests.support.wire import RawConnection

FILE = Path(__file__).parents[2] / "data" / "apache-kafka-share-deliveries.txt"
LOCK_MS = 6000  # longer than a story, however slow the machine
WAIT_MS = 10_000  # for what must come
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.record.lock.duration.ms": "1000",
    "transaction.partition.verification.enable": "false",
}
GROUP_RESOURCE = 32
UNKNOWN_ID = bytes(range(16))
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Ack = tuple[int, ...]  # first offset, last offset, types


def _name(error_code: int) -> str:
    return ErrorCode(error_code).name


class Member:
    """A member of the story's group on a connection of its own."""

    def __init__(self, teller: Teller, name: str) -> None:
        self.teller = teller
        self.name = name
        self.epoch = 0
        self.connection = RawConnection(teller.conversation.port, timeout_s=30)

    def fetch(
        self,
        *acks: Ack,
        wait_ms: int = 0,
        most: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        epoch: int | None = None,
        partitions: Sequence[int] = (),
        forget: Sequence[int] = (),
        topic_id: bytes = b"",
        is_renew_ack: bool = False,
        version: int = 2,
    ) -> None:
        """ShareFetch; the first one names partition 0."""
        number = self.epoch if epoch is None else epoch
        named = list(partitions) or ([0] if number == 0 or acks else [])
        id_ = topic_id or self.teller.topic_id
        topic = fetch_wire.FetchTopic(
            topic_id=id_,
            partitions=[
                fetch_wire.FetchPartition(
                    partition_index=index,
                    acknowledgement_batches=[
                        fetch_wire.AcknowledgementBatch(
                            first_offset=ack[0], last_offset=ack[1], acknowledge_types=list(ack[2:])
                        )
                        for ack in (acks if index == 0 else ())
                    ],
                )
                for index in named
            ],
        )
        gone = fetch_wire.ForgottenTopic(topic_id=id_, partitions=list(forget))
        message = fetch_wire.ShareFetchRequest(
            group_id=self.teller.group_id,
            member_id=self.name,
            share_session_epoch=number,
            max_wait_ms=0 if is_renew_ack else wait_ms,
            min_bytes=0 if is_renew_ack else 1,
            max_bytes=0 if is_renew_ack else 1 << 20,
            max_records=0 if is_renew_ack else most,
            batch_size=batch_size,
            share_acquire_mode=mode,
            is_renew_ack=is_renew_ack,
            topics=[topic] if named else [],
            forgotten_topics_data=[gone] if forget else [],
        )
        answer = self._ask(message, version)
        words = [f"{self.name} fetches", *_about(version, number, epoch), *_told(acks)]
        words += [f"at most {most}"] * (most != 500) + [f"batch size {batch_size}"] * (batch_size != 500)
        words += [f"mode {mode}"] * bool(mode) + [f"partitions {named}"] * bool(partitions)
        words += [f"forgets {list(forget)}"] * bool(forget) + ["unknown topic"] * bool(topic_id)
        words += ["renewal"] * is_renew_ack
        self.teller.say(" ".join(words), _fetched(answer, has_acks=bool(acks)))

    def fetch_until_some(self) -> None:
        """Fetch again and again until there are records; only that answer is told."""
        before = list(self.teller.lines)

        def has_some() -> bool:
            self.fetch()
            return "nothing" not in self.teller.lines[-1] and "|" in self.teller.lines[-1]

        eventually("there are records", has_some)
        answer = self.teller.lines[-1].partition(" -> ")[2]
        self.teller.lines[:] = before
        self.teller.say(f"{self.name} fetches until there are records", answer)

    def acknowledge(
        self, *acks: Ack, epoch: int | None = None, is_renew_ack: bool = False, version: int = 2, partition: int = 0
    ) -> None:
        """ShareAcknowledge of one partition."""
        number = self.epoch if epoch is None else epoch
        topic = acknowledge_wire.AcknowledgeTopic(
            topic_id=self.teller.topic_id,
            partitions=[
                acknowledge_wire.AcknowledgePartition(
                    partition_index=partition,
                    acknowledgement_batches=[
                        acknowledge_wire.AcknowledgementBatch(
                            first_offset=ack[0], last_offset=ack[1], acknowledge_types=list(ack[2:])
                        )
                        for ack in acks
                    ],
                )
            ],
        )
        message = acknowledge_wire.ShareAcknowledgeRequest(
            group_id=self.teller.group_id,
            member_id=self.name,
            share_session_epoch=number,
            is_renew_ack=is_renew_ack,
            topics=[topic] if acks else [],
        )
        answer = self._ask(message, version)
        words = [f"{self.name} acknowledges", *_about(version, number, epoch), *(_told(acks) or ["nothing"])]
        words += ["renewal"] * is_renew_ack
        found = [
            f"{data.partition_index}:{_name(data.error_code)}" for each in answer.responses for data in each.partitions
        ]
        self.teller.say(" ".join(words), " ".join([_name(answer.error_code), *found]))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
        self.teller.lines.append(f"{self.name} disconnects")

    def _ask(self, message: Request, version: int) -> Any:
        payload = bytes(encode_request(RequestHeader(message.API_KEY, version, 1, CLIENT_ID), message)[4:])
        frame = self.connection.request(payload)
        assert frame is not None, "the connection was closed"
        _, offset = decode_response_header(frame, message.API_KEY, version)
        answer: Any = response_class(message.API_KEY).decode(frame, version, offset)
        if not answer.error_code:
            self.epoch += 1
        return answer


def _about(version: int, number: int, epoch: int | None) -> list[str]:
    """Return the version and epoch, where they are not the usual ones."""
    return [f"v{version}"] * (version != 2) + [f"epoch {number}"] * (number == 0 or epoch is not None)


def _told(acks: Sequence[Ack]) -> list[str]:
    return [f"{ack[0]}-{ack[1]}:{','.join(map(str, ack[2:]))}" for ack in acks]


def _fetched(answer: fetch_wire.ShareFetchResponse, *, has_acks: bool) -> str:
    found = [_name(answer.error_code)]
    for topic in answer.responses:
        for data in sorted(topic.partitions, key=lambda each: each.partition_index):
            acquired = " ".join(f"{a.first_offset}-{a.last_offset}x{a.delivery_count}" for a in data.acquired_records)
            words = [f"{data.partition_index}:{_name(data.error_code)}"]
            words += [f"acks {_name(data.acknowledge_error_code)}"] * has_acks
            words.append(acquired or "nothing")
            if acquired:
                headers = iter_headers(memoryview(data.records))
                words.append("in " + " ".join(f"{h.base_offset}-{h.last_offset}" for _, h in headers))
            found.append(" ".join(words))
    return " | ".join(found)


@dataclass(slots=True)
class Teller:
    """Records the requests of one story, which has a topic and a group of its own."""

    conversation: Conversation
    topic_id: bytes = b""
    group_id: str = ""
    lines: list[str] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)

    def begin(self, story: str) -> None:
        """Make the topic, and initialize the state of its two partitions for the group."""
        self.end()
        self.group_id = story.replace(" ", "-")
        topic = CreatableTopic(name=self.group_id, num_partitions=2, replication_factor=1)
        (created,) = self.conversation.ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert not created.error_code, _name(created.error_code)
        self.topic_id = created.topic_id
        self.lines += ["", f"# {story}"]
        self.initialize(1, 0)

    def end(self) -> None:
        """Close the connections of the story's members."""
        for member in self.members.values():
            member.connection.close()
        self.members.clear()

    def initialize(self, state_epoch: int, start_offset: int) -> None:
        """Initialize the state of both partitions."""
        rows = [
            initialize.PartitionData(partition=n, state_epoch=state_epoch, start_offset=start_offset) for n in (0, 1)
        ]
        topic = initialize.InitializeStateData(topic_id=self.topic_id, partitions=rows)
        request = initialize.InitializeShareGroupStateRequest(group_id=self.group_id, topics=[topic])

        def is_done() -> bool:
            results = self.conversation.ask(request, 0).results
            return all(not part.error_code for each in results for part in each.partitions)

        eventually("the state is initialized", is_done)

    def say(self, step: str, answer: str) -> None:
        """Add a line."""
        self.lines.append(f"{step} -> {answer}")

    def __getitem__(self, name: str) -> Member:
        """Return a member."""
        return self.members.setdefault(name, Member(self, name)) if name not in self.members else self.members[name]

    def append(self, *counts: int, partition: int = 0, is_young: bool = False, producer_id: int = -1) -> None:
        """Append batches of so many records; with a producer id, in a transaction."""
        timestamp = SystemClock().wall_ms() if is_young else 0
        begun = {} if producer_id < 0 else {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        for count in counts:
            records = build_batch([SimpleRecord(timestamp, None, b"v")] * count, producer_id=producer_id, **begun)
            row = PartitionProduceData(index=partition, records=memoryview(bytearray(records)))
            topic = TopicProduceData(name=self.group_id, partition_data=[row])
            id_ = None if producer_id < 0 else "transactional"
            request = ProduceRequest(transactional_id=id_, acks=-1, timeout_ms=WAIT_MS, topic_data=[topic])

            def is_done(request: Request = request) -> bool:
                ((part,),) = [each.partition_responses for each in self.conversation.ask(request, 9).responses]
                return not part.error_code

            eventually("the records are appended", is_done)
        words = [f"appended {' '.join(map(str, counts))}", *[f"to {partition}"] * bool(partition)]
        words += ["young"] * (is_young and not begun) + [f"by transactional producer {producer_id}"] * bool(begun)
        self.lines.append(" ".join(words))

    def end_transaction(self, producer_id: int, stable: int, *, is_committed: bool) -> None:
        """WriteTxnMarkers to partition 0, whose last stable offset is `stable` then."""
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=is_committed,
            topics=[WritableTxnMarkerTopic(name=self.group_id, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        self.conversation.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        latest = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topic = ListOffsetsTopic(name=self.group_id, partitions=[latest])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic])

        def is_stable() -> bool:
            return bool(self.conversation.ask(request, 7).topics[0].partitions[0].offset == stable)

        eventually("the records are stable", is_stable)
        self.lines.append(f"producer {producer_id} {'commits' if is_committed else 'aborts'}")

    def configure(self, name: str, value: str) -> None:
        """Set a config of the group."""
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group_id, configs=[change])
        asked = describe_wire.DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self.group_id, configuration_keys=[name]
        )

        def is_known() -> bool:
            (found,) = self.conversation.ask(describe_wire.DescribeConfigsRequest(resources=[asked]), 4).results
            return [config.value for config in found.configs] == [value]

        self.conversation.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        eventually("the config is known", is_known)
        self.lines.append(f"{name}={value}")

    def delete_before(self, offset: int) -> None:
        """DeleteRecords of partition 0."""
        part = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=self.group_id, partitions=[part])
        self.conversation.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=WAIT_MS), 2)
        self.lines.append(f"records before {offset} are deleted")


# --- the stories


def _accept(t: Teller) -> None:
    t.append(3, 2)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].fetch()
    t["m"].acknowledge((0, 4, ACCEPT))
    t["m"].acknowledge((0, 4, ACCEPT))
    t["m"].fetch()
    t.append(1)
    t["m"].fetch((0, 4, ACCEPT), wait_ms=WAIT_MS)
    t["m"].fetch((5, 5, ACCEPT))


def _types_for_each_offset(t: Teller) -> None:
    t.append(6)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].acknowledge((0, 5, ACCEPT, GAP, RELEASE, REJECT, RELEASE, ACCEPT))
    t["m"].fetch()
    t["m"].acknowledge((2, 2, ACCEPT), (4, 4, RELEASE))
    t["n"].fetch(wait_ms=WAIT_MS)
    t["n"].fetch((4, 4, REJECT))
    t["n"].fetch()


def _limits_of_records(t: Teller) -> None:
    t.append(5, 5, 5, 5)
    t["m"].fetch(most=3, wait_ms=WAIT_MS)
    t["n"].fetch(most=7, wait_ms=WAIT_MS)
    t["o"].fetch(most=2, mode=1, wait_ms=WAIT_MS)
    t["o"].fetch(most=1, mode=1, wait_ms=WAIT_MS)
    t["p"].fetch(most=500, mode=1, wait_ms=WAIT_MS)
    t["p"].fetch()
    t["n"].acknowledge((5, 14, RELEASE))
    t["p"].fetch(most=6, mode=1, wait_ms=WAIT_MS)
    t["p"].fetch(most=1, wait_ms=WAIT_MS)
    t["q"].fetch(most=0)


def _batch_size(t: Teller) -> None:
    t.append(2, 2, 2, 2, 2)
    t["m"].fetch(batch_size=3, wait_ms=WAIT_MS)
    t["m"].acknowledge((0, 9, RELEASE))
    t["m"].fetch(batch_size=3, most=5, wait_ms=WAIT_MS)
    t["n"].fetch(batch_size=1, wait_ms=WAIT_MS)


def _sessions(t: Teller) -> None:
    t.append(1)
    t["m"].fetch(epoch=1)
    t["m"].fetch(epoch=-1)
    t["m"].acknowledge(epoch=1)
    t["m"].acknowledge(epoch=0)
    t["m"].acknowledge(epoch=-1)
    t["m"].fetch((0, 0, ACCEPT), epoch=0)
    t["m"].fetch(partitions=[0, 1], wait_ms=WAIT_MS)
    t["m"].fetch(epoch=5)
    t["m"].fetch(epoch=0)
    t["m"].epoch = 1
    t["m"].acknowledge((0, 0, ACCEPT))
    t["m"].acknowledge((0, 0, ACCEPT), epoch=1)
    t["m"].acknowledge()
    t["m"].fetch(partitions=[1])
    t["m"].fetch(partitions=[7])
    t["m"].fetch()
    t["m"].fetch(forget=[7])
    t["m"].fetch()
    t["m"].acknowledge((0, 0, ACCEPT), epoch=-1)
    t["m"].fetch()
    t["m" * 36].fetch()
    t["m" * 37].fetch()
    t[""].fetch()


def _an_unknown_topic(t: Teller) -> None:
    t["m"].fetch(topic_id=UNKNOWN_ID)
    t["n"].fetch(wait_ms=1000)
    t["n"].fetch(topic_id=UNKNOWN_ID, partitions=[0])


def _refused_acknowledgements(t: Teller) -> None:
    t.append(5, 5)
    t["m"].fetch(most=5, wait_ms=WAIT_MS)
    t["n"].fetch(most=5, wait_ms=WAIT_MS)
    t["m"].acknowledge((5, 9, ACCEPT))
    t["m"].acknowledge((0, 9, ACCEPT))
    t["m"].acknowledge((0, 10, ACCEPT))
    t["m"].acknowledge((10, 12, ACCEPT))
    t["m"].acknowledge((3, 2, ACCEPT))
    t["m"].acknowledge((0, 4))
    t["m"].acknowledge((0, 4, ACCEPT, ACCEPT))
    t["m"].acknowledge((0, 4, 5))
    t["m"].acknowledge((0, 4, -1))
    t["m"].acknowledge((0, 4, RENEW))
    t["m"].acknowledge((0, 4, RENEW), version=1)
    t["m"].acknowledge((3, 4, ACCEPT), (0, 1, ACCEPT))
    t["m"].acknowledge((0, 0, ACCEPT), partition=7)
    t["m"].fetch((0, 4, ACCEPT, ACCEPT))
    t["m"].acknowledge((0, 1, ACCEPT), (3, 4, REJECT))
    t["m"].acknowledge((0, 2, ACCEPT))
    t["m"].acknowledge((2, 2, ACCEPT))


def _suspicious_records(t: Teller) -> None:
    """Each delivery is released, until the record is archived after its fifth."""
    t.append(8)
    m = t["m"]
    for _ in range(3):
        m.fetch(wait_ms=WAIT_MS)
        m.acknowledge((0, 7, RELEASE))
    m.fetch(wait_ms=WAIT_MS)
    m.acknowledge((0, 3, RELEASE))
    m.fetch(wait_ms=WAIT_MS)
    m.fetch((0, 0, RELEASE), wait_ms=WAIT_MS)
    m.fetch((1, 1, ACCEPT), wait_ms=WAIT_MS)
    m.fetch((2, 2, REJECT), wait_ms=WAIT_MS)
    m.fetch((3, 3, ACCEPT), wait_ms=WAIT_MS)
    m.fetch((4, 7, ACCEPT))


def _a_lock_runs_out(t: Teller) -> None:
    t.append(4)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["n"].fetch_until_some()
    t["m"].acknowledge((0, 3, ACCEPT))
    t["n"].acknowledge((0, 3, ACCEPT))
    t["m"].fetch()


def _renewal(t: Teller) -> None:
    t.append(4)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].acknowledge((0, 3, RENEW), is_renew_ack=True)
    t["m"].fetch((0, 3, RENEW), is_renew_ack=True)
    t["m"].acknowledge((0, 3, ACCEPT, RENEW, RENEW, RELEASE), is_renew_ack=True)
    t["n"].fetch(wait_ms=WAIT_MS)
    t["m"].acknowledge((1, 2, ACCEPT))
    t["n"].acknowledge((3, 3, RENEW), is_renew_ack=True)
    t["m"].acknowledge((1, 2, RENEW), is_renew_ack=True)


def _the_last_request(t: Teller) -> None:
    t.append(4)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].acknowledge((0, 1, ACCEPT), epoch=-1)
    t["n"].fetch_until_some()
    t["n"].fetch((2, 2, ACCEPT), epoch=-1)
    t["o"].fetch_until_some()


def _a_connection_closes(t: Teller) -> None:
    t.append(4)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["n"].fetch()
    t["m"].close()
    t["n"].fetch_until_some()


def _records_are_deleted(t: Teller) -> None:
    t.append(2, 2, 2, 2)
    t["m"].fetch(most=4, wait_ms=WAIT_MS)
    t["m"].acknowledge((0, 3, RELEASE))
    t.delete_before(5)
    t["n"].fetch_until_some()
    t["n"].acknowledge((5, 7, ACCEPT))


def _two_partitions(t: Teller) -> None:
    t["m"].fetch(partitions=[0, 1], wait_ms=1000)  # until both are loaded
    t.append(3)
    t.append(2, partition=1)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].fetch((0, 2, ACCEPT))
    t.append(1, partition=1)
    t["m"].fetch(wait_ms=WAIT_MS)


def _committed_records_only(t: Teller) -> None:
    """Why young: else the markers, which are, begin another segment, and no read goes on in it."""
    t.configure("share.isolation.level", "read_committed")
    t.append(2, producer_id=7, is_young=True)
    t.append(1, is_young=True)
    t.append(2, producer_id=8, is_young=True)
    t["m"].fetch(wait_ms=1000)
    t.end_transaction(7, 3, is_committed=False)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].fetch()
    t.end_transaction(8, 7, is_committed=True)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].acknowledge((2, 4, ACCEPT), (5, 6, GAP))
    t.append(2, producer_id=9, is_young=True)
    t.end_transaction(9, 10, is_committed=False)
    t.append(1, is_young=True)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["m"].acknowledge((7, 10, ACCEPT))
    t["m"].acknowledge((9, 10, GAP, ACCEPT))


def _uncommitted_records_too(t: Teller) -> None:
    t.append(2, producer_id=7, is_young=True)
    t["m"].fetch(wait_ms=WAIT_MS)
    t.end_transaction(7, 3, is_committed=False)
    t["m"].fetch(wait_ms=WAIT_MS)


def _from_the_earliest(t: Teller) -> None:
    t.configure("share.auto.offset.reset", "earliest")
    t.initialize(2, -1)
    t.append(2)
    t["m"].fetch(wait_ms=WAIT_MS)


def _from_the_latest(t: Teller) -> None:
    t.initialize(2, -1)
    t.append(2)
    t["m"].fetch(wait_ms=1000)
    t.append(1)
    t["m"].fetch(wait_ms=WAIT_MS)


def _from_an_hour_ago(t: Teller) -> None:
    t.configure("share.auto.offset.reset", "by_duration:PT1H")
    t.initialize(2, -1)
    t.append(2)
    t.append(1, is_young=True)
    t["m"].fetch(wait_ms=WAIT_MS)


def _a_shorter_lock(t: Teller) -> None:
    t.configure("share.record.lock.duration.ms", "1000")
    t.configure("share.delivery.count.limit", "2")
    t.append(2)
    t["m"].fetch(wait_ms=WAIT_MS)
    t["n"].fetch_until_some()
    t["n"].acknowledge((0, 1, RELEASE))
    t["n"].acknowledge((0, 1, ACCEPT))
    t["m"].fetch()


def _in_v1(t: Teller) -> None:
    t.append(3)
    t["m"].fetch(version=1, wait_ms=WAIT_MS)
    t["m"].acknowledge((0, 0, ACCEPT), version=1)
    t["m"].acknowledge((1, 2, RELEASE), version=1)
    t["m"].fetch(version=1, wait_ms=WAIT_MS)


STORIES: tuple[Callable[[Teller], None], ...] = (
    _accept,
    _types_for_each_offset,
    _limits_of_records,
    _batch_size,
    _sessions,
    _an_unknown_topic,
    _refused_acknowledgements,
    _suspicious_records,
    _a_lock_runs_out,
    _renewal,
    _the_last_request,
    _a_connection_closes,
    _records_are_deleted,
    _two_partitions,
    _committed_records_only,
    _uncommitted_records_too,
    _from_the_earliest,
    _from_the_latest,
    _from_an_hour_ago,
    _a_shorter_lock,
    _in_v1,
)


def transcript(port: int) -> str:
    """Tell all stories to an unused broker; returns their lines."""
    conversation = Conversation(port)

    def is_there() -> bool:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"])
        return not conversation.ask(request, 6).coordinators[0].error_code

    eventually("the share coordinator is there", is_there)
    teller = Teller(conversation)
    for story in STORIES:
        teller.begin(story.__name__.strip("_").replace("_", " "))
        story(teller)
    teller.end()
    return "\n".join(teller.lines).strip() + "\n"


def main() -> None:
    """Tell the stories to a fresh node of Apache Kafka, and keep the transcript."""
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-share-") as directory,
        ApacheKafka(kafka_runtime(), Path(directory), CONFIG) as node,
    ):
        FILE.write_text(transcript(node.port))
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
