"""One member of a group as a process that can be killed: `python member.py '{"group": ..., ...}'`.

It reads, and commits after every few records. It prints its view as lines of JSON:
    {"event": "owns", "generation": 3, "partitions": [0, 2]}                       at each change
    {"event": "committed", "generation": 3, "offsets": {"0": 17}}                  after the broker's confirmation
    {"event": "error", "what": "..."}
On SIGTERM it leaves its group.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_S = 0.1
RECORDS_PER_COMMIT = 20
MAGIC = b"CGMDv2:"  # librdkafka's encoding of a group's metadata: magic, generation (native int32), names


def generation_of(consumer: Consumer) -> int:
    """The client's generation (or member epoch)."""
    metadata = consumer.consumer_group_metadata()
    assert metadata.startswith(MAGIC)
    return int.from_bytes(metadata[len(MAGIC) : len(MAGIC) + 4], sys.byteorder, signed=True)


class Member:
    """The consumer, and the partitions that it owns."""

    def __init__(self, topic: str, is_cooperative: bool, config: dict[str, Any]) -> None:
        self._topic = topic
        self._is_cooperative = is_cooperative
        self._owned: set[int] = set()
        self._consumer = Consumer(config)
        self._is_leaving = False
        signal.signal(signal.SIGTERM, self._leave)
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def run(self) -> None:
        """Read and commit until SIGTERM."""
        while not self._is_leaving:
            messages = [m for m in self._consumer.consume(RECORDS_PER_COMMIT, POLL_S) if m.error() is None]
            positions = {m.partition(): m.offset() + 1 for m in messages}
            if positions:
                self._commit(positions)
        self._consumer.close()

    def _leave(self, *_: object) -> None:
        self._is_leaving = True

    def _commit(self, positions: dict[int, int]) -> None:
        generation = generation_of(self._consumer)
        offsets = [TopicPartition(self._topic, p, offset) for p, offset in positions.items() if p in self._owned]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False) if offsets else []
        except KafkaException as error:
            report("error", what=f"commit: {error}")
            return
        committed = {answer.partition: answer.offset for answer in answers if answer.error is None}
        report("committed", generation=generation, offsets=committed)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = {assigned.partition for assigned in partitions}
        self._owned = self._owned | numbers if self._is_cooperative else numbers
        self._report_owned()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned -= {revoked.partition for revoked in partitions}
        self._report_owned()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned = set()
        self._report_owned()

    def _report_owned(self) -> None:
        report("owns", generation=generation_of(self._consumer), partitions=sorted(self._owned))


def report(event: str, **what: Any) -> None:
    """Print a line."""
    print(json.dumps({"event": event, **what}), flush=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    Member(given["topic"], given["cooperative"], given["config"]).run()
