"""An idempotent producer with several batches on their way, as Kafka's own: order must hold across failures.

It sends up to five batches over one connection before it reads the first answer, and repeats those without an
acknowledgement in their order. Every request of a connection is answered in turn, unless the connection ends. It keeps
a connection for several turns, so an answer too many is noticed.

A broker that restarts remembers one batch of each producer, as in Kafka. So of several batches whose answers were lost,
the earlier ones may be in the log and never be acknowledged. Then the producer gives them up, and begins its next
epoch: what is still on its way is refused then. A leader that has run all the while remembers all five.

Now and then the producer begins its next epoch by itself, and then sends what its former self could have.

Threads: a client has one task.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k00_produce import ProduceRequest
from tests.simulation.load.clients.client import REQUEST_TIMEOUT_MS, Address, UnexpectedAnswerError
from tests.simulation.load.clients.producers import (
    PRODUCE_VERSION,
    RECORDS_MAX,
    IdempotentProducer,
    Journal,
    Sent,
    batch_of,
    produce_request,
)

IN_FLIGHT_MAX: Final = 5
GAPS: Final = 4  # before one of so many sequences of batches, the second one is sent first
#: So often a leader answers that a batch does not continue what it has, before the producer gives up.
REFUSALS_MAX: Final = 100
EPOCHS: Final = 15  # in one of so many turns, the producer begins its next epoch
HANG_UPS: Final = 3  # in one of so many turns, it closes its connection
_SIZE: Final = struct.Struct(">i")


class GivingUp(Journal, Protocol):
    """A journal that knows of records without a known outcome."""

    def refused(self, partition: int, sent: Sent) -> None:
        """The producer gave the record up, which may be there."""


class _Batch(NamedTuple):
    sent: list[Sent]
    data: bytes


class PipeliningProducer(IdempotentProducer):
    """See the module."""

    _journal: GivingUp

    def __init__(self, *arguments: Any, era: Callable[[TopicPartition], tuple[int, int]]) -> None:
        super().__init__(*arguments)
        self._era = era  # changes when a broker starts, and when a leader is elected
        self._correlation_id = 0
        self._refusals = 0  # of the first batch, in a row
        self._acknowledged: set[int] = set()  # partitions whose leaders know this epoch
        self._former: dict[int, tuple[int, int]] = {}  # partition -> the last id and epoch whose batches its leader has
        self._connected: tuple[Address, socket.socket] | None = None
        self._since = (0, -1, -1)  # `_now` when the batches that wait were sent first
        self.problems: list[str] = []

    def run(self) -> None:
        """Send until it is asked to stop."""
        self.begin()
        while not self.is_stopping:
            partition = self._draw(self._partitions)
            waiting = deque(self._next_batch(partition) for _ in range(1 + self._draw(IN_FLIGHT_MAX)))
            self._refusals = 0
            if len(waiting) > 1 and partition in self._acknowledged and not self._draw(GAPS):
                self._leave_a_gap(partition, waiting[1])
            self.leader(self._topic, partition)
            self._since = self._now(partition)
            while waiting:
                self._send_all(partition, waiting)
                if self._refusals > REFUSALS_MAX:
                    self._give_up(partition, waiting)
            if partition in self._acknowledged and partition in self._former:
                self._act_as(self._former.pop(partition), partition)
            if not self._draw(HANG_UPS):
                self._hang_up()
            if not self._draw(EPOCHS):
                self._begin_epoch()
            self._between.wait(self._pause_s)
        self._hang_up()
        self.close()

    def _now(self, partition: int) -> tuple[int, int, int]:
        """Return what stays the same while one process leads a partition, as this client knows too."""
        return (self.leader_epoch(self._topic, partition), *self._era(TopicPartition(self._topic, partition)))

    def _next_batch(self, partition: int) -> _Batch:
        sent = [self._journal.next(partition, self._number) for _ in range(1 + self._draw(RECORDS_MAX))]
        data = batch_of(sent, self._clock.wall_ms(), self._producer, self._sequences[partition])
        self._sequences[partition] += len(sent)
        return _Batch(sent, data)

    def _leave_a_gap(self, partition: int, batch: _Batch) -> None:
        """Send a batch before the one that comes first, which no leader may append."""
        answer = self.ask_leader(
            self._topic, partition, produce_request(self._topic, partition, batch.data), PRODUCE_VERSION
        )
        if answer is not None and not answer.responses[0].partition_responses[0].error_code:
            self.problems.append(f"gap: {self.name} left one in {self._topic}-{partition}")

    def _act_as(self, former: tuple[int, int], partition: int) -> None:
        """Send a first batch of an earlier epoch, which no leader may append that has a batch of this one.

        Why the first one: any other is refused because of its sequence, too.
        """
        sent = [self._journal.next(partition, self._number)]
        for each in sent:
            self._journal.refused(partition, each)
        data = batch_of(sent, self._clock.wall_ms(), former, 0)
        answer = self.ask_leader(self._topic, partition, produce_request(self._topic, partition, data), PRODUCE_VERSION)
        if answer is not None and not answer.responses[0].partition_responses[0].error_code:
            self.problems.append(
                f"zombie: {self.name} as {former} wrote to {self._topic}-{partition}, after {self._producer}"
            )

    def _give_up(self, partition: int, waiting: deque[_Batch]) -> None:
        for batch in waiting:
            for each in batch.sent:
                self._journal.refused(partition, each)
        waiting.clear()
        self._refusals = 0
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """Take the next epoch, as clients without a transactional id do by themselves."""
        for partition in self._acknowledged:
            self._former[partition] = self._producer
        self._acknowledged.clear()
        self._sequences = [0] * self._partitions
        self._producer = (self._producer[0], self._producer[1] + 1)

    def _send_all(self, partition: int, waiting: deque[_Batch]) -> None:
        """Send all batches that wait over a new connection, and take the answers; what fails stays in the queue."""
        address = self.leader(self._topic, partition)
        if address is None:
            self.wait()
            return
        failed: list[_Batch] = []
        try:
            connection = self._connect(address)
            first = self._correlation_id + 1
            connection.sendall(b"".join([self._frame(partition, batch) for batch in waiting]))
            for number in range(len(waiting)):
                answer = self._receive(connection, first + number)
                batch = waiting.popleft()
                if not self._take(partition, batch, answer.responses[0].partition_responses[0], not failed):
                    failed.append(batch)
        except OSError:
            self._hang_up()
            self.forget()
            self.wait()
        waiting.extendleft(reversed(failed))

    def _connect(self, address: Address) -> socket.socket:
        if self._connected is not None and self._connected[0] == address:
            return self._connected[1]
        self._hang_up()
        connection = socket.create_connection(address, timeout=REQUEST_TIMEOUT_MS / 1000)
        self._connected = (address, connection)
        return connection

    def _hang_up(self) -> None:
        if self._connected is not None:
            self._connected[1].close()
            self._connected = None

    def _frame(self, partition: int, batch: _Batch) -> bytes:
        self._correlation_id += 1
        request = produce_request(self._topic, partition, batch.data)
        header = RequestHeader(request.API_KEY, PRODUCE_VERSION, self._correlation_id, self.name)
        return bytes(encode_request(header, request))

    def _receive(self, connection: socket.socket, correlation_id: int) -> Any:
        (size,) = _SIZE.unpack(_read(connection, _SIZE.size))
        frame = memoryview(_read(connection, size))
        found, offset = decode_response_header(frame, ProduceRequest.API_KEY, PRODUCE_VERSION)
        if found != correlation_id:
            raise UnexpectedAnswerError(f"{self.name}: request {correlation_id} got the answer to {found}")
        return response_class(ProduceRequest.API_KEY).decode(frame, PRODUCE_VERSION, offset)

    def _take(self, partition: int, batch: _Batch, found: Any, is_first: bool) -> bool:
        """Note an answer; return whether the batch is acknowledged."""
        is_duplicate = found.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if not is_duplicate and self.may_pass(found.error_code, f"Produce to {self._topic}-{partition}"):
            if is_first and found.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._refusals += 1
                if self._since == self._now(partition):
                    self.problems.append(
                        f"forgotten: {self._topic}-{partition} refused a batch of {self.name} in epoch "
                        f"{self._since[0]}, in which it was sent first"
                    )
            return False
        self._refusals = 0
        self._acknowledged.add(partition)
        for index, each in enumerate(batch.sent):
            self._journal.acknowledged(partition, each, None if is_duplicate else found.base_offset + index)
        return True


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        data += more
    return data
