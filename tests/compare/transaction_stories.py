"""Stories of transactions as raw requests: each step and the broker's response are a line of a transcript.

`python -m tests.compare.transaction_stories` runs them on Apache Kafka and writes
tests/data/apache-kafka-transactions.txt. The tests compare Barnabas's transcript with this file. Producer ids are named
in the order of their appearance (A, B, ...).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.common.clock import SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k24_add_partitions_to_txn as add_wire
from barnabas.protocol.messages import k27_write_txn_markers as marker_wire
from barnabas.protocol.messages import k28_txn_offset_commit as offset_wire
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.k26_end_txn import EndTxnRequest
from barnabas.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.k66_list_transactions import ListTransactionsRequest
from barnabas.protocol.records.batch import SimpleRecord, build_batch, iter_headers
from barnabas.protocol.schema import Request
from tests.compare.conversation import Conversation
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.waiting import eventually

FILE = Path(__file__).parents[1] / "data" / "apache-kafka-transactions.txt"
V1_PRODUCE, ABORTABLE_PRODUCE, V2_PRODUCE = 9, 11, 12
TIMEOUT_MS = 60_000
MOVING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
Story = Callable[["Recorder"], None]


def name_of(error_code: int) -> str:
    """Return the name of an error code."""
    return ErrorCode(error_code).name


@dataclass(slots=True)
class Recorder:
    """Sends the requests of one transactional id and records the responses."""

    conversation: Conversation
    title: str
    producer_names: dict[int, str]
    lines: list[str] = field(default_factory=list)
    producer_id: int = -1
    epoch: int = -1
    sequence: dict[tuple[str, int, int], int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The transactional id."""
        return self.title.replace(" ", "-")

    @property
    def topic(self) -> str:
        """The story's topic."""
        return f"t-{self.id}"

    def ask(self, request: Request, version: int) -> Any:
        """Send a request and return the response."""
        return self.conversation.ask(request, version)

    def record(self, step: str, outcome: str) -> None:
        """Append a line to the transcript."""
        self.lines.append(f"{step}: {outcome}")

    def who(self, producer_id: int, epoch: int) -> str:
        """Return a producer's name and epoch; ids are replaced by letters."""
        if producer_id < 0:
            return f"nobody/{epoch}"
        return f"{self.producer_names.setdefault(producer_id, chr(ord('A') + len(self.producer_names)))}/{epoch}"

    # Setting up

    def create_topic(self, partitions: int = 1) -> None:
        """Create the story's topic and wait for its leaders."""
        topic = CreatableTopic(name=self.topic, num_partitions=partitions, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        listing = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=self.topic,
                    partitions=[ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)],
                )
            ],
        )
        eventually("the topic exists", lambda: not any(p.error_code for p in self.ask(listing, 5).topics[0].partitions))

    # Steps

    def init(self, version: int = 4, *, quiet_while_busy: bool = False, **fields: Any) -> None:
        """Send InitProducerId and keep the producer id and epoch."""
        given = {"transactional_id": self.id, "transaction_timeout_ms": TIMEOUT_MS, **fields}
        answer = self.ask(InitProducerIdRequest(**given), version)
        while quiet_while_busy and answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            answer = self.ask(InitProducerIdRequest(**given), version)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        shown = {key: self._shown(key, value) for key, value in fields.items()}
        self.record(f"init v{version} {shown or ''}".strip(), f"{name_of(answer.error_code)} "
                 f"{self.who(answer.producer_id, answer.producer_epoch)}")  # fmt: skip

    def _shown(self, key: str, value: Any) -> Any:
        return self.who(value, 0)[0] if key == "producer_id" and value >= 0 else value

    def add(self, *partitions: int, version: int = 3, topic: str = "", busy: bool = False, **who: Any) -> None:
        """Send AddPartitionsToTxn; repeats it while the transaction is busy, unless `busy`."""
        given = self._given(who)
        topics = [add_wire.AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions))]
        if version >= 4:
            request = add_wire.AddPartitionsToTxnRequest(
                transactions=[add_wire.AddPartitionsToTxnTransaction(**given, topics=topics)]
            )
        else:
            request = add_wire.AddPartitionsToTxnRequest(
                **{f"v3_and_below_{key}": value for key, value in given.items()}, v3_and_below_topics=topics
            )

        def outcome() -> str:
            answer = self.ask(request, version)
            rows = answer.results_by_transaction[0].topic_results if version >= 4 else (
                answer.results_by_topic_v3_and_below
            )  # fmt: skip
            result = {p.partition_index: p.partition_error_code for t in rows for p in t.results_by_partition}
            return " ".join(name_of(result[index]) for index in partitions)

        result = outcome()
        while result.startswith("CONCURRENT") and not busy:
            result = outcome()
        self.record(f"add v{version} {list(partitions)}{self._differing(who)}", result)

    def _given(self, who: dict[str, Any]) -> dict[str, Any]:
        return {
            "transactional_id": self.id, "producer_id": self.producer_id, "producer_epoch": self.epoch, **who,
        }  # fmt: skip

    def _differing(self, who: dict[str, Any]) -> str:
        return f" {who}" if who else ""

    def produce(self, version: int = V1_PRODUCE, partition: int = 0, *, busy: bool = False, **options: Any) -> None:
        """Produce a record; repeats it while the transaction is busy, unless `busy`."""
        producer_id, epoch = options.pop("producer_id", self.producer_id), options.pop("epoch", self.epoch)
        topic = options.pop("topic", self.topic)
        key = (topic, partition, epoch)
        sequence = options.pop("sequence", self.sequence.get(key, 0))
        batch = build_batch(
            [SimpleRecord(SystemClock().wall_ms(), b"k", b"v")] * 2, producer_id=producer_id, producer_epoch=epoch,
            base_sequence=sequence, is_transactional=options.pop("is_transactional", True),
        )  # fmt: skip
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(
            transactional_id=options.pop("transactional_id", self.id), acks=-1, timeout_ms=5_000, topic_data=[data]
        )

        def outcome() -> Any:
            return self.ask(request, version).responses[0].partition_responses[0]

        row = outcome()
        retried = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)
        while row.error_code in retried and not busy:
            row = outcome()
        if not row.error_code:
            self.sequence[key] = sequence + 2
        self.record(f"produce v{version} epoch {epoch} sequence {sequence}", f"{name_of(row.error_code)} "
                 f"{'' if row.error_code else row.base_offset}".strip())  # fmt: skip

    def end(self, version: int, is_commit: bool, *, busy: bool = False, epoch: int | None = None, **who: Any) -> None:
        """Send EndTxn; repeats it while the transaction is busy, unless `busy`."""
        given = self._given(who)
        given["producer_epoch"] = self.epoch if epoch is None else epoch
        request = EndTxnRequest(**given, committed=is_commit)
        answer = self.ask(request, version)
        while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS and not busy:
            answer = self.ask(request, version)
        result = name_of(answer.error_code)
        if version >= 5:
            result += " " + self.who(answer.producer_id, answer.producer_epoch)
            if not answer.error_code:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        what = "commit" if is_commit else "abort"
        self.record(f"{what} v{version} epoch {given['producer_epoch']}{self._differing(who)}", result)

    def add_offsets(self, version: int = 3, group: str | None = None, **who: Any) -> None:
        """Send AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(**self._given(who), group_id=self.id if group is None else group)
        answer = self.ask(request, version)
        while answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            answer = self.ask(request, version)
        self.record(f"add offsets v{version}{self._differing(who)}", name_of(answer.error_code))

    def commit_offset(self, version: int, offset: int, *, topic: str = "", metadata: str = "", **fields: Any) -> None:
        """Send TxnOffsetCommit."""
        partition = offset_wire.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        rows = [offset_wire.TxnOffsetCommitRequestTopic(name=topic or self.topic, partitions=[partition])]
        request = offset_wire.TxnOffsetCommitRequest(**{"group_id": self.id, **self._given(fields)}, topics=rows)

        def outcome() -> str:
            answer = self.ask(request, version)
            return " ".join(name_of(p.error_code) for t in answer.topics for p in t.partitions)

        result = outcome()
        while result in ("CONCURRENT_TRANSACTIONS", "COORDINATOR_LOAD_IN_PROGRESS"):
            result = outcome()
        self.record(f"commit offset {offset} v{version}{self._differing(fields)}", result)

    def offset(self, *, stable: bool = True, wait: bool = False) -> None:
        """Fetch the committed offset of the story's group."""
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.id, topics=[OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
                )
            ],
            require_stable=stable,
        )

        def outcome() -> str:
            group = self.ask(request, 9).groups[0]
            if group.error_code:
                return name_of(group.error_code)
            row = group.topics[0].partitions[0]
            return f"{name_of(row.error_code)} {row.committed_offset}"

        result = outcome()
        while wait and result.startswith("UNSTABLE"):
            result = outcome()
        self.record(f"offset, {'stable' if stable else 'any'}", result)

    def ends(self) -> None:
        """Record the end offsets of both isolation levels."""
        result = []
        for level in (0, 1):
            partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=level, topics=[ListOffsetsTopic(name=self.topic, partitions=[partition])]
            )
            result.append(self.ask(request, 5).topics[0].partitions[0].offset)
        self.record("end for read_uncommitted, read_committed", f"{result}")

    def until_stable(self) -> None:
        """Wait for the markers: until both isolation levels have the same end offset."""

        def is_stable() -> bool:
            lines = list(self.lines)
            self.ends()
            result = self.lines[-1]
            self.lines[:] = lines
            first, second = result.rsplit("[", 1)[1].rstrip("]").split(", ")
            return first == second

        eventually("the markers are written", is_stable)
        self.ends()

    def fetch(self, offset: int = 0) -> None:
        """Fetch as both isolation levels and record the result."""
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=1,
            topics=[FetchTopic(topic=self.topic, partitions=[partition])],
        )  # fmt: skip
        row = self.ask(request, 11).responses[0].partitions[0]
        batches = [
            f"{'control' if h.is_control else 'data'} {h.base_offset} {self.who(h.producer_id, h.producer_epoch)}"
            for _, h in iter_headers(memoryview(row.records or b""))
        ]
        aborted = [f"{self.who(a.producer_id, 0)[0]} from {a.first_offset}" for a in row.aborted_transactions or ()]
        self.record(f"fetch from {offset}", f"LSO {row.last_stable_offset}, aborted {aborted}, {'; '.join(batches)}")

    def producers(self) -> None:
        """Record the response of DescribeProducers."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=[0, 9])])
        first, second = self.ask(request, 0).topics[0].partitions
        rows = [
            f"{self.who(p.producer_id, p.producer_epoch)} sequence {p.last_sequence} from {p.current_txn_start_offset}"
            for p in first.active_producers
        ]
        self.record("producers", f"{rows}, partition 9: {name_of(second.error_code)}")

    def describe(self, transactional_id: str | None = None, *, settled: bool = False) -> None:
        """Record the response of DescribeTransactions; `settled` waits for the end of a Prepare state."""
        name = self.id if transactional_id is None else transactional_id
        request = DescribeTransactionsRequest(transactional_ids=[name])
        (row,) = self.ask(request, 0).transaction_states
        while settled and row.transaction_state.startswith("Prepare"):
            (row,) = self.ask(request, 0).transaction_states
        if row.error_code:
            self.record("describe", name_of(row.error_code))
            return
        topics = [(topic.topic, sorted(topic.partitions)) for topic in row.topics]
        has_begun = row.transaction_start_time_ms > 0
        self.record("describe", f"{row.transaction_state} {self.who(row.producer_id, row.producer_epoch)} "
                 f"timeout {row.transaction_timeout_ms} begun {has_begun} {topics}")  # fmt: skip

    def next_millisecond(self) -> None:
        """Wait until the broker's clock, which is this machine's, has moved."""
        now_ms = SystemClock().wall_ms()
        eventually("the next millisecond", lambda: SystemClock().wall_ms() > now_ms)

    def list(self, version: int = 1, **filters: Any) -> None:
        """Record the story's transactions in the response of ListTransactions."""
        answer = self.ask(ListTransactionsRequest(**filters), version)
        mine = [
            f"{self.who(row.producer_id, 0)[0]} {row.transaction_state}"
            for row in answer.transaction_states
            if row.transactional_id == self.id
        ]
        shown = {key: value for key, value in filters.items() if key != "producer_id_filters"}
        self.record(f"list {shown}", f"{name_of(answer.error_code)} {mine} unknown {answer.unknown_state_filters}")

    def mark(self, version: int, is_commit: bool, *partitions: int, topic: str = "", **fields: Any) -> None:
        """Send WriteTxnMarkers."""
        marker = marker_wire.WritableTxnMarker(
            **{
                "producer_id": self.producer_id, "producer_epoch": self.epoch, "coordinator_epoch": 5,
                "transaction_result": is_commit, **fields,
            },
            topics=[marker_wire.WritableTxnMarkerTopic(name=topic or self.topic, partition_indexes=list(partitions))],
        )  # fmt: skip
        answer = self.ask(marker_wire.WriteTxnMarkersRequest(markers=[marker]), version)
        errors = {p.partition_index: p.error_code for m in answer.markers for t in m.topics for p in t.partitions}
        result = [name_of(errors[index]) for index in partitions]
        self.record(f"mark v{version} {'commit' if is_commit else 'abort'} {list(partitions)}{self._differing(fields)}",
                 " ".join(result))  # fmt: skip


# The stories


def version_1(t: Recorder) -> None:
    """A transaction's life cycle with version 1 of the protocol."""
    t.create_topic(2)
    t.describe()
    t.init()
    t.describe()
    t.produce()
    t.add(0)
    t.add(0)
    t.produce()
    t.describe()
    t.ends()
    t.producers()
    t.fetch()
    t.end(3, True)
    t.until_stable()
    t.end(3, True)
    t.end(3, False)
    t.add(0, 1)
    t.produce()
    t.end(3, False)
    t.until_stable()
    t.end(3, False)
    t.end(3, True)
    t.fetch()
    t.fetch(4)
    t.describe(settled=True)
    t.producers()
    t.init()
    t.end(3, True)
    t.end(3, False)


def version_2(t: Recorder) -> None:
    """A life cycle with version 2: produce adds partitions, and every end raises the epoch."""
    t.create_topic(1)
    t.init(5)
    for is_commit in (True, False, True):
        t.produce(V2_PRODUCE)
        t.produce(V2_PRODUCE)
        t.describe()
        t.end(5, is_commit)
        t.until_stable()
        t.end(5, is_commit, epoch=t.epoch - 1)
        t.end(5, not is_commit, epoch=t.epoch - 1)
        t.end(5, True)
    t.end(5, False)
    t.end(5, False)
    t.end(5, False, epoch=0)
    t.produce(V2_PRODUCE, epoch=0)
    t.fetch()
    t.producers()
    t.describe(settled=True)


def version_2_empty(t: Recorder) -> None:
    """Ends of empty transactions."""
    t.create_topic(1)
    t.init(5)
    t.end(5, True)
    t.end(5, False, epoch=-1)
    t.end(5, False)
    t.describe(settled=True)
    t.produce(V2_PRODUCE)
    t.end(5, True)


def fencing(t: Recorder) -> None:
    """A second producer of the same id, version 1."""
    t.create_topic(1)
    t.init()
    t.add(0)
    t.produce()
    t.init()
    t.init(quiet_while_busy=True)
    t.until_stable()
    t.fetch()
    for version in (0, 1, 2, 3):
        t.end(version, True, epoch=0)
        t.add(0, version=version, producer_epoch=0)
    t.add_offsets(1, producer_epoch=0)
    t.add_offsets(2, producer_epoch=0)
    t.produce(epoch=0)
    t.produce(V2_PRODUCE, epoch=0)
    t.init(3, producer_id=t.producer_id, producer_epoch=0)
    t.init(4, producer_id=t.producer_id, producer_epoch=0)


def fencing_version_2(t: Recorder) -> None:
    """A second producer of the same id, version 2."""
    t.create_topic(1)
    t.init(5)
    t.produce(V2_PRODUCE)
    t.init(5)
    t.init(5, quiet_while_busy=True)
    t.until_stable()
    t.fetch()
    t.produce(V2_PRODUCE, epoch=0)
    t.end(5, True, epoch=0)
    t.end(5, False, epoch=0)


def kip_360(t: Recorder) -> None:
    """A producer raises its epoch."""
    t.create_topic(1)
    t.init()
    mine = {"producer_id": t.producer_id, "producer_epoch": 0}
    t.init(3, **mine)
    t.init(3, **mine)
    t.init()
    t.init(3, **mine)
    t.init(4, **mine)
    t.init(4, producer_id=t.producer_id, producer_epoch=2)
    t.init(4, producer_id=-1, producer_epoch=2)
    t.init(4, producer_id=t.producer_id, producer_epoch=-1)


def strange_requests(t: Recorder) -> None:
    """Requests that no client sends."""
    t.create_topic(2)
    t.init(transaction_timeout_ms=0)
    t.init(transaction_timeout_ms=2**31 - 1)
    t.init(transactional_id="")
    t.init(transactional_id=None, transaction_timeout_ms=-1)
    t.add(0, transactional_id="never-seen")
    t.add(0, transactional_id="")
    t.end(3, True, transactional_id="never-seen")
    t.end(5, True, transactional_id="never-seen")
    t.end(3, True, transactional_id="")
    t.end(5, True, transactional_id="")
    t.add_offsets(transactional_id="never-seen")
    t.add_offsets(transactional_id="")
    t.describe("never-seen")
    t.describe("")
    t.init()
    t.add(0, producer_id=t.producer_id + 1000)
    t.end(3, True, producer_id=t.producer_id + 1000)
    t.end(5, True, producer_id=t.producer_id + 1000)
    t.add(0, 7)
    t.add(0, topic="no-such-topic")
    t.add_offsets(group="")
    t.end(3, False)


def verification(t: Recorder) -> None:
    """Records for partitions that are not part of the transaction (KIP-890)."""
    t.create_topic(2)
    t.init()
    for version in (V1_PRODUCE, 10, ABORTABLE_PRODUCE):
        t.produce(version)
    t.add(0)
    t.produce(V1_PRODUCE, partition=1)
    t.produce(ABORTABLE_PRODUCE, partition=1)
    t.produce(ABORTABLE_PRODUCE, transactional_id="never-seen")
    t.produce(V2_PRODUCE, transactional_id="never-seen")
    t.produce(ABORTABLE_PRODUCE, epoch=1)
    t.produce(V1_PRODUCE, transactional_id=None)
    t.produce(V1_PRODUCE)
    t.produce(V1_PRODUCE, transactional_id="never-seen")
    t.produce(V1_PRODUCE, is_transactional=False)
    t.end(3, True)
    t.until_stable()
    t.produce(V1_PRODUCE)
    t.produce(V1_PRODUCE, is_transactional=False)
    for version in (4, 5):
        for verify_only in (True, False):
            t.add(0, version=version, verify_only=verify_only, busy=True)
    t.add(1, version=5, verify_only=True)
    t.add(1, version=5, verify_only=True, producer_epoch=9)
    t.add(0, version=5, verify_only=True, transactional_id="never-seen")
    t.end(3, False)


def sequences(t: Recorder) -> None:
    """Sequence numbers at the beginning of a transaction."""
    t.create_topic(2)
    t.init(5)
    t.produce(V2_PRODUCE, sequence=4)
    t.produce(V2_PRODUCE, sequence=0)
    t.produce(V2_PRODUCE, sequence=0)
    t.produce(V2_PRODUCE, sequence=4)
    t.end(5, True)
    t.until_stable()
    t.produce(V2_PRODUCE, sequence=2)
    t.produce(V2_PRODUCE, sequence=0)
    t.end(5, True)
    t.until_stable()
    t.init()
    t.add(0, 1)
    t.produce(V1_PRODUCE, partition=1, sequence=8)
    t.produce(V1_PRODUCE, partition=1, sequence=10)
    t.end(3, True)


def offsets(t: Recorder) -> None:
    """Offsets in transactions, version 1."""
    t.create_topic(1)
    t.init()
    t.offset()
    t.commit_offset(3, 1)
    t.commit_offset(4, 1)
    t.add_offsets()
    t.commit_offset(3, 1)
    t.offset(stable=False)
    t.offset()
    t.end(3, True)
    t.offset(wait=True)
    t.add_offsets()
    t.commit_offset(0, 2)
    t.offset()
    t.end(3, False)
    t.offset(wait=True)
    t.add_offsets()
    t.commit_offset(3, 3, member_id="nobody")
    t.commit_offset(3, 3, generation_id=4)
    t.commit_offset(3, 3, group_instance_id="nobody")
    t.commit_offset(3, 3, topic="no-such-topic")
    t.commit_offset(3, 3, metadata="x" * 5000)
    t.commit_offset(3, 3, group_id="")
    t.commit_offset(3, 3, group_id="another", generation_id=3)
    t.commit_offset(3, 3, producer_epoch=9)
    t.commit_offset(3, 3, transactional_id="never-seen")
    t.end(3, True)
    t.offset(wait=True)
    t.describe(settled=True)


def offsets_version_2(t: Recorder) -> None:
    """Offsets in transactions, version 2: the commit adds its partition."""
    t.create_topic(1)
    t.init(5)
    for offset, is_commit in ((5, True), (6, False), (7, True)):
        t.commit_offset(5, offset)
        t.offset(stable=False)
        t.offset()
        t.end(5, is_commit)
        t.offset(wait=True)
    t.commit_offset(5, 8, producer_epoch=0)
    t.commit_offset(5, 8, transactional_id="never-seen")


def markers(t: Recorder) -> None:
    """Markers of an administrator who ends a hanging transaction, and of a zombie coordinator."""
    t.create_topic(2)
    t.init()
    t.mark(1, False, 0)
    t.producers()
    t.add(0, 1)
    t.produce()
    t.mark(1, False, 0, 1, 9, coordinator_epoch=4)
    t.mark(1, False, 0, 1, 9)
    t.mark(1, False, 0)
    t.mark(1, False, 0, topic="no-such-topic")
    t.mark(1, False, 0, producer_epoch=3, coordinator_epoch=-1)
    t.mark(1, False, 0, producer_epoch=3, coordinator_epoch=6)
    t.mark(2, False, 0, producer_epoch=3, coordinator_epoch=6, transaction_version=2)
    t.mark(2, False, 0, producer_epoch=2, coordinator_epoch=6, transaction_version=2)
    t.producers()
    t.fetch()


def looking(t: Recorder) -> None:
    """ListTransactions with its filters."""
    t.create_topic(1)
    t.init()
    t.list()
    t.list(state_filters=["Empty"])
    t.list(state_filters=["Ongoing"])
    t.list(state_filters=["Nonsense"])
    t.add(0)
    t.list(state_filters=["Ongoing", "Dead"])
    t.list(producer_id_filters=[t.producer_id])
    t.list(producer_id_filters=[t.producer_id + 1000])
    t.next_millisecond()  # the filter asks for a transaction that is older than 0 ms
    t.list(duration_filter=0)
    t.list(duration_filter=10_000_000)
    t.list(2, transactional_id_pattern="loo.*")
    t.list(2, transactional_id_pattern="loo")
    t.list(2, transactional_id_pattern="(")
    t.list(2, transactional_id_pattern="")
    t.end(3, False)


STORIES: tuple[Story, ...] = (
    version_1, version_2, version_2_empty, fencing, fencing_version_2, kip_360, strange_requests, verification,
    sequences, offsets, offsets_version_2, markers, looking,
)  # fmt: skip


def run_stories(port: int) -> Iterator[tuple[str, list[str]]]:
    """Run every story. Yields its name and transcript."""
    conversation = Conversation(port)
    for key_type in (0, 1):
        find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        eventually(
            "the coordinators are known", lambda find=find: not conversation.ask(find, 4).coordinators[0].error_code
        )
    ask = InitProducerIdRequest(transactional_id="warm-up", transaction_timeout_ms=TIMEOUT_MS)
    eventually("the coordinator has loaded", lambda: conversation.ask(ask, 4).error_code not in MOVING)
    heads = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="warm-up", topics=None)])
    eventually(
        "the group coordinator has loaded", lambda: conversation.ask(heads, 9).groups[0].error_code not in MOVING
    )
    for story in STORIES:
        recorder = Recorder(conversation, story.__name__, {})
        story(recorder)
        yield story.__name__, recorder.lines


def load() -> dict[str, list[str]]:
    """Read Apache Kafka's transcripts by story."""
    stories: dict[str, list[str]] = {}
    for line in FILE.read_text().splitlines():
        if line.startswith("# "):
            lines = stories.setdefault(line[2:], [])
        elif line:
            lines.append(line)
    return stories


def save(stories: Iterator[tuple[str, list[str]]]) -> None:
    """Write the transcripts to the file."""
    FILE.write_text("\n\n".join(f"# {name}\n" + "\n".join(lines) for name, lines in stories) + "\n")


def main() -> None:
    """Run the stories on Apache Kafka and record the transcripts."""
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-golden-") as directory,
        ApacheKafka(kafka_runtime(), Path(directory), {"auto.create.topics.enable": "false"}) as node,
    ):
        save(run_stories(node.port))
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
