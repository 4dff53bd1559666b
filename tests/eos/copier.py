"""Consume, transform, produce with confluent-kafka, as a process that can be killed: `python copier.py '{...}'`.

Arguments: client (the settings with which it connects), group, id (the transactional id), input, output. Each record
goes to the same partition of the output, and the offsets go into the transaction with the generation of the group
(KIP-447). Some transactions are aborted on purpose, after all their records were sent. The process ends on SIGTERM, or
with 1 after a fatal error of its producer; it must then be started again.

A watchdog also ends it when it has copied nothing for STUCK_S, or for INIT_STUCK_S after its start. Why: librdkafka
2.16 caches a coordinator for minutes. When that broker has restarted, a call may wait for the old connection, beyond
its own timeout.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

RECORDS_PER_TRANSACTION = 100
POLL_S = 0.2
CALL_TIMEOUT_S = 10
INIT_TIMEOUT_S = 30
INIT_STUCK_S = 35
STUCK_S = 25
ABORT_SHARE = 0.15
RECONNECT = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Copier:
    """One consumer and one producer."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._output = given["output"]
        self._random = random.Random(given["id"])
        self._is_ending = False
        common: dict[str, Any] = {**given["client"], **RECONNECT}
        self._producer = Producer(
            {**common, "transactional.id": given["id"], "transaction.timeout.ms": 10_000, "linger.ms": 2}
        )
        self._consumer = Consumer(
            {
                **common, "group.id": given["group"], "enable.auto.commit": False, "auto.offset.reset": "earliest",
                "isolation.level": "read_committed", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000,
            }
        )  # fmt: skip
        signal.signal(signal.SIGTERM, self._end)
        self._input = given["input"]

    def run(self) -> None:
        """Copy until SIGTERM."""
        faulthandler.dump_traceback_later(INIT_STUCK_S, exit=True)
        self._producer.init_transactions(INIT_TIMEOUT_S)
        self._consumer.subscribe([self._input])
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        while not self._is_ending:
            messages = [m for m in self._consumer.consume(RECORDS_PER_TRANSACTION, POLL_S) if m.error() is None]
            if messages:
                self._copy(messages)
                faulthandler.dump_traceback_later(STUCK_S, exit=True)
        self._consumer.close()

    def _end(self, *_: object) -> None:
        self._is_ending = True

    def _copy(self, messages: Sequence[Message]) -> None:
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._producer.produce(self._output, message.value(), message.key(), partition=message.partition())
            ends = {message.partition(): message.offset() + 1 for message in messages}
            offsets = [TopicPartition(self._input, partition, offset) for partition, offset in ends.items()]
            metadata = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, metadata, CALL_TIMEOUT_S)
            if self._random.random() < ABORT_SHARE:
                self._producer.flush(CALL_TIMEOUT_S)
                self._abort()
            else:
                self._producer.commit_transaction(CALL_TIMEOUT_S)
        except (KafkaException, BufferError) as error:
            if isinstance(error, KafkaException) and not error.args[0].txn_requires_abort():
                raise
            print(f"aborting: {error}", file=sys.stderr)
            self._abort()

    def _abort(self) -> None:
        self._producer.abort_transaction(CALL_TIMEOUT_S)
        assigned = self._consumer.assignment()
        if not assigned:
            return
        for position in self._consumer.committed(assigned, CALL_TIMEOUT_S):
            if position.error is not None:
                raise KafkaException(position.error)
            start = position.offset if position.offset >= 0 else 0
            self._consumer.seek(TopicPartition(position.topic, position.partition, start))


if __name__ == "__main__":
    try:
        Copier(json.loads(sys.argv[1])).run()
    except KafkaException as error:
        print(f"fatal: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # without close(), which would wait for a rebalance
