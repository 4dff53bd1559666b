"""Producers outside of transactions: idempotent ones with acks=all, and those that lose records by design.

Threads: a client has one task; a journal belongs to all, since no client has a point while it notes something.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.simulation.load.clients.client import REQUEST_TIMEOUT_MS, Address, Client

PRODUCE_VERSION: Final = 9
INIT_PRODUCER_ID_VERSION: Final = 4
RECORDS_MAX: Final = 4  # of a batch


class Sent(NamedTuple):
    """A record that a producer sends, and how its journal knows it."""

    key: bytes | None
    value: bytes | None
    record: Any


class Journal(Protocol):
    """What producers learn of a topic."""

    def next(self, partition: int, producer: int) -> Sent:
        """Return the next record of a producer for a partition."""

    def acknowledged(self, partition: int, sent: Sent, offset: int | None) -> None:
        """The record was acknowledged at this offset (None: without one)."""


def batch_of(
    sent: list[Sent], now_ms: int, producer: tuple[int, int] = (-1, -1), sequence: int = -1, *,
    is_transactional: bool = False,
) -> bytes:  # fmt: skip
    """Return a batch of these records, of a producer id and epoch."""
    # Why the time: a broker that restarts takes a producer with old batches for one that has been silent for long.
    return build_batch(
        [SimpleRecord(now_ms, each.key, each.value) for each in sent],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def produce_request(
    topic: str, partition: int, batch: bytes, acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """Return a request with one batch."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=REQUEST_TIMEOUT_MS // 2, topic_data=[data]
    )


class Producer(Client):
    """A client that sends batches to partitions of the seed's choice until it is asked to stop."""

    def __init__(
        self, number: int, bootstrap: list[Address], topic: str, partitions: int, journal: Journal,
        draw: Callable[[int], int], pause_s: float,
    ) -> None:  # fmt: skip
        super().__init__(f"producer-{number}", bootstrap)
        self._number = number
        self._topic = topic
        self._partitions = partitions
        self._journal = journal
        self._draw = draw  # a random number below its argument
        self._pause_s = pause_s  # between batches
        self._between = threading.Event()

    def run(self) -> None:
        """Send until it is asked to stop."""
        self.begin()
        while not self.is_stopping:
            partition = self._draw(self._partitions)
            self.send(
                partition, [self._journal.next(partition, self._number) for _ in range(1 + self._draw(RECORDS_MAX))]
            )
            self._between.wait(self._pause_s)
        self.close()

    def begin(self) -> None:
        """Prepare to send."""

    def send(self, partition: int, sent: list[Sent]) -> None:
        """Send a batch."""
        raise NotImplementedError


class IdempotentProducer(Producer):
    """Sends numbered records with acks=all, one batch at a time, and repeats a batch until it is acknowledged."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._producer = (-1, -1)
        self._sequences = [0] * self._partitions

    def begin(self) -> None:
        """Get a producer id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self.until_answered(
            lambda: self.ask_any(request, INIT_PRODUCER_ID_VERSION), lambda it: it.error_code, "InitProducerId"
        )
        self._producer = (answer.producer_id, answer.producer_epoch)
        self.producer_ids.add(answer.producer_id)

    def send(self, partition: int, sent: list[Sent]) -> None:
        """Send a batch until it is acknowledged."""
        batch = batch_of(sent, self._clock.wall_ms(), self._producer, self._sequences[partition])
        self._sequences[partition] += len(sent)
        request = produce_request(self._topic, partition, batch)
        what = f"Produce of {[each.value for each in sent]} to {self._topic}-{partition}"
        while True:
            answer = self.ask_leader(self._topic, partition, request, PRODUCE_VERSION)
            if answer is None:
                continue
            found = answer.responses[0].partition_responses[0]
            is_duplicate = found.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            if not is_duplicate and self.may_pass(found.error_code, what):
                continue
            for index, each in enumerate(sent):
                self._journal.acknowledged(partition, each, None if is_duplicate else found.base_offset + index)
            return


class PlainProducer(Producer):
    """Sends each batch once, with acks=1 and no producer id. What it sends may be lost, but not be there twice."""

    def send(self, partition: int, sent: list[Sent]) -> None:
        """Send a batch once."""
        request = produce_request(self._topic, partition, batch_of(sent, self._clock.wall_ms()), acks=1)
        answer = self.ask_leader(self._topic, partition, request, PRODUCE_VERSION)
        if answer is None:
            return
        found = answer.responses[0].partition_responses[0]
        if not self.may_pass(found.error_code, f"Produce with acks=1 to {self._topic}-{partition}"):
            for index, each in enumerate(sent):
                self._journal.acknowledged(partition, each, found.base_offset + index)


class SilentProducer(Producer):
    """Sends each batch once, with acks=0: there is no answer, and an error closes the connection."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sockets: dict[Address, socket.socket] = {}
        self._correlation_id = 0

    def send(self, partition: int, sent: list[Sent]) -> None:
        """Send a batch once."""
        address = self.leader(self._topic, partition)
        if address is None:
            self.wait()
            return
        self._correlation_id += 1
        request = produce_request(self._topic, partition, batch_of(sent, self._clock.wall_ms()), acks=0)
        header = RequestHeader(request.API_KEY, PRODUCE_VERSION, self._correlation_id, self.name)
        try:
            sock = self._sockets.get(address)
            if sock is None:
                sock = socket.create_connection(address, timeout=REQUEST_TIMEOUT_MS / 1000)
                self._sockets[address] = sock
            elif sock.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b"":
                raise ConnectionResetError  # the broker refused an earlier batch
        except BlockingIOError:
            pass
        except OSError:
            self._lose(address)
            return
        try:
            sock.sendall(encode_request(header, request))
        except OSError:
            self._lose(address)

    def close(self) -> None:
        """Close the connections."""
        super().close()
        for sock in self._sockets.values():
            sock.close()

    def _lose(self, address: Address) -> None:
        sock = self._sockets.pop(address, None)
        if sock is not None:
            sock.close()
        self.forget()
        self.wait()
