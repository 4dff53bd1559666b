"""Members of a share group with librdkafka. Arguments, output and end are those of ShareMembers.java."""

from __future__ import annotations

import sys
import threading
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

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
        client.subscribe([self._topic])
        while not stopping.is_set():
            try:
                self._take(client, [record for record in client.poll(POLL_S) if not self._is_error(record)])
            except KafkaException as error:
                print("X", self._id, str(error).replace("\n", " "), flush=True)
        client.close()

    def _is_error(self, record: Message) -> bool:
        if record.error() is None:
            return False
        print("X", self._id, str(record.error()).replace("\n", " "), flush=True)
        return True

    def _take(self, client: ShareConsumer, records: list[Message]) -> None:
        lines = []
        for record in records:
            how = self._how(record)
            which = f"{self._id} {record.partition()} {record.offset()}"
            lines.append(f"G {which} {record.delivery_count()} {LETTERS[how]}\n")
            client.acknowledge(record, how)
        if records:
            results = {partition.partition: error for partition, error in client.commit_sync(COMMIT_S).items()}
            for record in records:
                error = results.get(record.partition())
                which = f"{self._id} {record.partition()} {record.offset()}"
                lines.append(f"D {which}\n" if error is None else f"E {which} {type(error).__name__}\n")
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def _how(self, record: Message) -> AcknowledgeType:
        offset = record.offset()
        if self._rejected and offset % self._rejected == self._rejected - 1:
            return AcknowledgeType.REJECT
        if self._released and offset % self._released == 0 and record.delivery_count() <= 1:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.ACCEPT


def main() -> None:
    topic, members, released, rejected, *pairs = sys.argv[1:]
    settings = dict(pair.split("=", 1) for pair in pairs)
    stopping = threading.Event()
    threads = [
        threading.Thread(target=Member(number, topic, int(released), int(rejected), settings).run, args=(stopping,))
        for number in range(int(members))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopping.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
