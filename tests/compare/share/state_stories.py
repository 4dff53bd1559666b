"""Stories of share state as raw requests: each step, the broker's response, and in the end the records, as lines.

`python -m tests.compare.share.state_stories` runs them on Apache Kafka and writes
tests/data/apache-kafka-share-state.txt. The tests compare Barnabas's transcript with this file.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.common.ids import uuid_to_string
from barnabas.protocol.coordinator_records import share_state as record_wire
from barnabas.protocol.coordinator_records.record import decode_versioned, read_prefix
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k83_initialize_share_group_state as initialize
from barnabas.protocol.messages import k84_read_share_group_state as read
from barnabas.protocol.messages import k85_write_share_group_state as write
from barnabas.protocol.messages import k86_delete_share_group_state as delete
from barnabas.protocol.messages import k87_read_share_group_state_summary as summary
from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.records.batch import iter_headers, iter_records
from barnabas.protocol.schema import Request
from tests.compare.conversation import Conversation
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.waiting import eventually

FILE = Path(__file__).parents[2] / "data" / "apache-kafka-share-state.txt"
TOPIC, STATE_TOPIC = "shared", "__share_group_state"
UNKNOWN_ID = bytes(range(16))
SHARE_KEY_TYPE = 2
#: Small numbers, so that a story reaches a snapshot.
CONFIG = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
ACKNOWLEDGED, ARCHIVED, AVAILABLE = 2, 4, 0
Batch = tuple[int, int, int, int]  # first offset, last offset, delivery state, delivery count


def _name(error_code: int) -> str:
    return ErrorCode(error_code).name


def _batches(some: list[Any]) -> str:
    return " ".join(f"{b.first_offset}-{b.last_offset}:{b.delivery_state}x{b.delivery_count}" for b in some) or "none"


@dataclass(slots=True)
class Recorder:
    """Sends the requests of one group and records the responses."""

    conversation: Conversation
    topic_id: bytes = b""
    group_id: str = "g"
    lines: list[str] = field(default_factory=list)

    def begin(self, what: str) -> None:
        """Begin a story, with a group of its own."""
        self.group_id = what
        self.lines += ["", f"# {what}"]

    def say(self, step: str, answer: str) -> None:
        """Add a line."""
        self.lines.append(f"{step} -> {answer}")

    def initialize(self, state_epoch: int, start_offset: int, partition: int = 0, topic_id: bytes = b"") -> None:
        """InitializeShareGroupState of one partition."""
        row = initialize.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=start_offset)
        topic = initialize.InitializeStateData(topic_id=topic_id or self.topic_id, partitions=[row])
        answer = self._ask(initialize.InitializeShareGroupStateRequest(group_id=self.group_id, topics=[topic]), 0)
        self.say(f"initialize {partition} epoch {state_epoch} start {start_offset}", _errors(answer))

    def write(
        self,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        *batches: Batch,
        partition: int = 0,
        topic_id: bytes = b"",
        count: int = -1,
        version: int = 1,
    ) -> None:
        """WriteShareGroupState of one partition."""
        row = write.PartitionData(
            partition=partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=count,
            state_batches=[
                write.StateBatch(first_offset=b[0], last_offset=b[1], delivery_state=b[2], delivery_count=b[3])
                for b in batches
            ],
        )
        topic = write.WriteStateData(topic_id=topic_id or self.topic_id, partitions=[row])
        answer = self._ask(write.WriteShareGroupStateRequest(group_id=self.group_id, topics=[topic]), version)
        step = f"write {partition} v{version} epochs {state_epoch}/{leader_epoch} start {start_offset} count {count}"
        self.say(f"{step} {_batches(row.state_batches)}", _errors(answer))

    def read(self, leader_epoch: int, partition: int = 0, topic_id: bytes = b"") -> None:
        """ReadShareGroupState of one partition."""
        row = read.PartitionData(partition=partition, leader_epoch=leader_epoch)
        topic = read.ReadStateData(topic_id=topic_id or self.topic_id, partitions=[row])
        answer = self._ask(read.ReadShareGroupStateRequest(group_id=self.group_id, topics=[topic]), 0)
        (found,) = answer.results[0].partitions
        state = f"epoch {found.state_epoch} start {found.start_offset} {_batches(found.state_batches)}"
        self.say(f"read {partition} leader {leader_epoch}", f"{_errors(answer)} {state}")

    def summary(self, leader_epoch: int = -1, partition: int = 0, topic_id: bytes = b"", version: int = 1) -> None:
        """ReadShareGroupStateSummary of one partition."""
        row = summary.PartitionData(partition=partition, leader_epoch=leader_epoch)
        topic = summary.ReadStateSummaryData(topic_id=topic_id or self.topic_id, partitions=[row])
        answer = self._ask(summary.ReadShareGroupStateSummaryRequest(group_id=self.group_id, topics=[topic]), version)
        (found,) = answer.results[0].partitions
        state = f"epochs {found.state_epoch}/{found.leader_epoch} start {found.start_offset}"
        self.say(
            f"summary {partition} v{version} leader {leader_epoch}",
            f"{_errors(answer)} {state} count {found.delivery_complete_count}",
        )

    def delete(self, partition: int = 0, topic_id: bytes = b"") -> None:
        """DeleteShareGroupState of one partition."""
        topic = delete.DeleteStateData(
            topic_id=topic_id or self.topic_id, partitions=[delete.PartitionData(partition=partition)]
        )
        answer = self._ask(delete.DeleteShareGroupStateRequest(group_id=self.group_id, topics=[topic]), 0)
        self.say(f"delete {partition}", _errors(answer))

    def _ask(self, request: Request, version: int) -> Any:
        """Ask again until the coordinator has loaded."""
        answers: list[Any] = []

        def is_answered() -> bool:
            answers.append(self.conversation.ask(request, version))
            errors = {p.error_code for topic in answers[-1].results for p in topic.partitions}
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in errors and ErrorCode.NOT_COORDINATOR not in errors

        eventually("the coordinator has loaded", is_answered)
        return answers[-1]


def _errors(answer: Any) -> str:
    return " ".join(f"{p.partition}:{_name(p.error_code)}" for topic in answer.results for p in topic.partitions)


def transcript(port: int) -> str:
    """Tell all stories to an unused broker; returns their lines."""
    conversation = Conversation(port)
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    (created,) = conversation.ask(CreateTopicsRequest(topics=[topic]), 7).topics
    recorder = Recorder(conversation, created.topic_id)
    _finding(recorder)
    for story in (_one_life, _fences, _batches_meet, _snapshots, _late_requests, _nothing_there):
        recorder.begin(story.__name__.strip("_").replace("_", " "))
        story(recorder)
    _shapes(recorder)
    _records(recorder)
    return "\n".join(recorder.lines).strip() + "\n"


def _finding(recorder: Recorder) -> None:
    recorder.begin("finding the coordinator")
    key = f"g:{uuid_to_string(recorder.topic_id)}:0"

    def found(key: str, version: int = 6) -> Any:
        request = FindCoordinatorRequest(key_type=SHARE_KEY_TYPE, coordinator_keys=[key])
        (coordinator,) = recorder.conversation.ask(request, version).coordinators
        return coordinator

    recorder.say("the first request", _name(found(key).error_code))
    eventually("the topic exists", lambda: found(key).error_code == ErrorCode.NONE)
    recorder.say("a later one", _name(found(key).error_code))
    recorder.say("a group with a colon", _name(found("a:" + key).error_code))
    for wrong in ("g", "g:0", "g:AAAA:0", f" :{key.partition(':')[2]}", key[:-1] + "x", ""):
        recorder.say(f"key {wrong.replace(uuid_to_string(recorder.topic_id), 'ID')!r}", _name(found(wrong).error_code))
    recorder.say("in v5", _name(found(key, 5).error_code))


def _one_life(r: Recorder) -> None:
    r.summary()
    r.initialize(1, -1)
    r.summary()
    r.summary(version=0)
    r.read(0)
    r.write(1, 0, 10, (10, 14, ACKNOWLEDGED, 1), count=5)
    r.read(0)
    r.summary()
    r.write(1, 0, 15, (15, 19, AVAILABLE, 1), (20, 24, ARCHIVED, 5), version=0)
    r.read(0)
    r.summary()
    r.initialize(2, 7)
    r.read(0)
    r.summary()
    r.delete()
    r.summary()
    r.read(0)
    r.delete()


def _fences(r: Recorder) -> None:
    r.initialize(5, 0)
    r.read(3)
    r.read(2)
    r.read(-1)
    r.write(5, 2, 0, (0, 0, ACKNOWLEDGED, 1))
    r.write(4, 3, 0, (0, 0, ACKNOWLEDGED, 1))
    r.write(4, 2, 0, (0, 0, ACKNOWLEDGED, 1))
    r.write(-1, -1, 0, (0, 0, ACKNOWLEDGED, 1))
    r.write(6, 4, 0, (1, 1, ACKNOWLEDGED, 1))
    r.summary()
    r.read(3)
    r.initialize(4, 0)
    r.initialize(5, 20)
    r.read(3)
    r.initialize(6, -1)
    r.summary(2)
    r.read(4)


def _batches_meet(r: Recorder) -> None:
    r.initialize(1, 0)
    r.write(1, 0, 0, (0, 9, AVAILABLE, 1), (10, 19, ACKNOWLEDGED, 1))
    r.write(1, 0, 0, (5, 14, ARCHIVED, 2))
    r.read(0)
    r.write(1, 0, -1, (0, 4, ACKNOWLEDGED, 1), (12, 30, AVAILABLE, 1))
    r.read(0)
    r.write(1, 0, 8, (3, 9, ACKNOWLEDGED, 2), (3, 9, ACKNOWLEDGED, 2))
    r.read(0)
    r.write(1, 0, 40)
    r.read(0)


def _snapshots(r: Recorder) -> None:
    r.initialize(1, 0)
    for number in range(9):
        r.write(1, 0, number // 2, (number, number, ACKNOWLEDGED, 1), count=number)
    r.read(0)
    r.summary()


def _late_requests(r: Recorder) -> None:
    """Requests that were sent before, as a broken connection delivers them."""
    r.initialize(1, -1)
    r.write(1, 0, 5, (5, 9, ACKNOWLEDGED, 1), count=5)
    r.write(1, 0, 10, (10, 14, ACKNOWLEDGED, 1), count=4)
    r.write(1, 0, 5, (5, 9, ACKNOWLEDGED, 1), count=5)
    r.read(0)
    r.summary()
    r.initialize(1, -1)
    r.read(0)


def _nothing_there(r: Recorder) -> None:
    r.read(0)
    r.write(1, 0, 0)
    for partition, topic_id in ((7, b""), (-1, b""), (0, UNKNOWN_ID), (0, bytes(16))):
        r.lines.append(f"partition {partition} of {'an unknown topic' if topic_id else 'the topic'}")
        r.initialize(1, 0, partition, topic_id)
        r.write(1, 0, 0, partition=partition, topic_id=topic_id)
        r.read(0, partition, topic_id)
        r.summary(0, partition, topic_id)
        r.delete(partition, topic_id)


def _shapes(r: Recorder) -> None:
    """Requests that name nothing, or several partitions."""
    r.begin("shapes")

    def asked(group_id: str, *topics: list[int]) -> str:
        wire = [
            read.ReadStateData(
                topic_id=r.topic_id, partitions=[read.PartitionData(partition=n, leader_epoch=0) for n in partitions]
            )
            for partitions in topics
        ]
        return str(_errors(r.conversation.ask(read.ReadShareGroupStateRequest(group_id=group_id, topics=wire), 0)))

    r.say("without a group", asked("", [0]))
    r.say("without topics", asked("g"))
    r.say("a topic without partitions", asked("g", []))
    r.say("one with, one without", asked("g", [0], []))
    r.say("two partitions", asked("g", [0, 1]))


def _records(r: Recorder) -> None:
    """Every record of the state topic."""
    r.lines += ["", "# records"]
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=STATE_TOPIC, partitions=[partition])
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic])
    (found,) = r.conversation.ask(request, 12).responses[0].partitions
    values = (record_wire.ShareSnapshotValue, record_wire.ShareUpdateValue)
    keys = (record_wire.ShareSnapshotKey, record_wire.ShareUpdateKey)
    buffer = memoryview(found.records)
    for record in (
        record
        for position, header in iter_headers(buffer)
        for record in iter_records(buffer[position : position + header.size_in_bytes])
    ):
        kind = read_prefix(record.key)
        key: Any = decode_versioned(keys[kind], record.key)
        line = f"{('snapshot', 'update')[kind]} {key.group_id} {key.partition}"
        if record.value is None:
            r.lines.append(f"{line} removed")
            continue
        value: Any = decode_versioned(values[kind], record.value)
        epochs = f"{value.snapshot_epoch}/{getattr(value, 'state_epoch', '-')}/{value.leader_epoch}"
        r.lines.append(
            f"{line} epochs {epochs} start {value.start_offset} count {value.delivery_complete_count} "
            f"{_batches(value.state_batches)}"
        )


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
