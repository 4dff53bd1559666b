"""Clients by aiokafka, unmodified: an idempotent producer, and a member of a group.

When the library gives up, a client begins anew, as an application would that is restarted.

Threads: see outsider.py; aiokafka has none.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

# Why: its modules in C read the real clock.
os.environ.setdefault("AIOKAFKA_NO_EXTENSIONS", "1")

import aiokafka
import aiokafka.errors

from tests.simulation.load.clients.fetching import Got
from tests.simulation.load.clients.outsider import (
    AGAIN_S,
    HEARTBEAT_MS,
    POLL_MS,
    SESSION_TIMEOUT_MS,
    Outsider,
)
from tests.simulation.load.clients.producers import Sent


class AiokafkaClient(Outsider):
    """A client that begins anew after an error of the library."""

    def run(self) -> None:
        """Work until it is asked to stop."""
        while not self.is_stopping:
            try:
                asyncio.run(self.work())
            except aiokafka.errors.KafkaError as error:
                self.trouble = f"{self.name}: {error!r}"
                self.between.wait(AGAIN_S)

    async def work(self) -> None:
        """Work until the library gives up, or it is asked to stop. Raises KafkaError."""
        raise NotImplementedError


class AiokafkaProducer(AiokafkaClient):
    """Sends numbered records with acks=all, idempotent."""

    async def work(self) -> None:
        """See AiokafkaClient."""
        number = self.journal.begin()
        self._has_failed = False
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, client_id=self.name, enable_idempotence=True
        )
        async with producer:
            while not (self.is_stopping or self._has_failed):
                partition = self.draw(self.partitions)
                sent = self.journal.next(partition, number)
                try:
                    future = await producer.send(self.topic, value=sent.value, partition=partition)
                except aiokafka.errors.KafkaError:
                    self.journal.refused(partition, sent)
                    raise
                future.add_done_callback(partial(self._done, partition, sent))
                await asyncio.sleep(self.pause_s)

    def _done(self, partition: int, sent: Sent, future: Any) -> None:
        if future.cancelled() or future.exception() is not None:
            self.trouble = f"{self.name}: {future!r}"
            self._has_failed = True
            self.journal.refused(partition, sent)
        else:
            offset = future.result().offset
            self.journal.acknowledged(partition, sent, offset if offset is not None and offset >= 0 else None)


class AiokafkaMember(AiokafkaClient):
    """A member of a classic group, which commits what it got."""

    async def work(self) -> None:
        """See AiokafkaClient."""
        consumer = aiokafka.AIOKafkaConsumer(
            self.topic, bootstrap_servers=self.bootstrap, client_id=self.name, group_id="aiokafka",
            auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )  # fmt: skip
        async with consumer:
            while not self.is_stopping:
                got = await consumer.getmany(timeout_ms=POLL_MS)
                if not got:
                    continue
                for tp, records in got.items():
                    for record in records:
                        self.journal.delivered(tp.partition, Got(record.offset, record.key, record.value))
                offsets = {tp: records[-1].offset + 1 for tp, records in got.items()}
                await consumer.commit(offsets)
                for tp, end in offsets.items():
                    self.journal.committed(tp.partition, end)
