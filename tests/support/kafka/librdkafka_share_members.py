"""Members of a share group with librdkafka. Arguments, output and end are those of ShareMembers.java."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer, TopicPartition

POLL_S = 0.2
COMMIT_S = 30
LETTERS = {AcknowledgeType.ACCEPT: "A", AcknowledgeType.RELEASE: "L", AcknowledgeType.REJECT: "R"}


class Member:
    """One member, in its own thread."""

    def __init__(self, number: int, topic: str, released: int, rejected: int, settings: dict[str, str]) -> None:
        self._id = number
        self._topic = topic
        self._released, self._rejected = released, rejected
        self._settings: dict[str, Any] = {**settings, "share.acknowledgement.mode": "explicit"}

    def run(self, stopping: threading.Event) -> None:
        """Acknowledge records until `stopping`, then leave."""
        client = ShareConsumer(self._settings)
        client.set_acknowledgement_commit_callback(self._acknowledged)
        client.subscribe([self._topic])
        while not stopping.is_set():
            try:
                self._take(client, [record for record in client.poll(POLL_S) if not self._is_error(record)])
            except KafkaException as error:
                self._tell([f"X {self._id} {error}"])
        client.close()

    def _is_error(self, record: Message) -> bool:
        if record.error() is None:
            return False
        self._tell([f"X {self._id} {record.error()}"])
        return True

    def _take(self, client: ShareConsumer, records: list[Message]) -> None:
        ways = [self._how(record) for record in records]
        self._tell(
            f"G {self._id} {record.partition()} {record.offset()} {record.delivery_count()} {LETTERS[how]}"
            for record, how in zip(records, ways, strict=True)
        )
        for record, how in zip(records, ways, strict=True):
            client.acknowledge(record, how)
        if records:
            client.commit_sync(COMMIT_S)

    def _acknowledged(self, offsets: dict[TopicPartition, set[int]], error: KafkaException | None) -> None:
        kind, name = ("D", "") if error is None else ("E", f" {error.args[0].name()}")
        self._tell(
            f"{kind} {self._id} {partition.partition} {offset}{name}"
            for partition, found in offsets.items()
            for offset in found
        )

    def _tell(self, lines: Iterable[str]) -> None:
        text = "".join(line.replace("\n", " ") + "\n" for line in lines)
        os.write(sys.stdout.fileno(), text.encode())

    def _how(self, record: Message) -> AcknowledgeType:
        offset = record.offset()
        if self._rejected and offset % self._rejected == self._rejected - 1:
            return AcknowledgeType.REJECT
        if self._released and offset % self._released == 0 and record.delivery_count() <= 1:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.ACCEPT


def main() -> None:
    topic, first, members, released, rejected, *pairs = sys.argv[1:]
    settings = dict(pair.split("=", 1) for pair in pairs)
    stopping = threading.Event()
    threads = [
        threading.Thread(target=Member(number, topic, int(released), int(rejected), settings).run, args=(stopping,))
        for number in range(int(first), int(first) + int(members))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
