"""Transactional producers: one that writes and reads within its transactions, and a copier.

The copier consumes, transforms and produces, exactly once.

Both speak either as clients before KIP-890 do, which add partitions themselves, or as those after it.

Threads: a client has one task; the journal belongs to all.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.k26_end_txn import EndTxnRequest
from barnabas.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.simulation.checks.transactions import Outcome, Place, Transaction, TransactionJournal, Value
from tests.simulation.load.clients.client import GROUP, TRANSACTION, Address
from tests.simulation.load.clients.fetching import READ_COMMITTED, Fetcher
from tests.simulation.load.clients.producers import (
    INIT_PRODUCER_ID_VERSION,
    RECORDS_MAX,
    Journal,
    Sent,
    batch_of,
    produce_request,
)

ADD_PARTITIONS_VERSION: Final = 3
ADD_OFFSETS_VERSION: Final = 3

STEPS_MAX: Final = 5  # of a transaction
COMMITS_OF_TEN: Final = 7
LAST_TIMEOUT_MS_MAX: Final = 20_000  # of a transaction that its producer leaves open in the end; a life waits for it
EMPTY: Final = 8  # one of so many transactions has no records, and is aborted
DELAYS: Final = 5  # one of so many transactions of keys ends late
DELAY_S: Final = 9.0
QUESTIONS: Final = 4  # within one of so many transactions, its offset is asked for
SUCCESSIONS: Final = 8  # in one of so many transactions, another process takes the transactional id over

#: The errors after which a producer cannot go on with its transaction, and begins again with InitProducerId.
FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)


class FencedError(Exception):
    """The transaction in progress has ended without its producer."""


class Transactional(Fetcher):
    """A client with a transactional id."""

    def __init__(
        self, name: str, bootstrap: list[Address], draw: Callable[[int], int], timeout_ms: int, pause_s: float, *,
        is_new: bool,
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap)
        self._draw = draw  # a random number below its argument
        self._timeout_ms = timeout_ms
        self._pause_s = pause_s
        self._is_new = is_new  # whether it knows KIP-890
        self._producer = (-1, -1)
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        self._has_offsets = False
        self._between = threading.Event()
        self._began_ns = 0
        self.fenced = 0
        self.fenced_early: list[str] = []  # what was refused before the transaction's time was up
        self.problems: list[str] = []

    def run(self) -> None:
        """Carry out transactions until it is asked to stop."""
        self.begin()
        while not self.is_stopping:
            self._began_ns = self._clock.monotonic_ns()
            self.transact()
            self._between.wait(self._pause_s)
        self.die()
        self.close()

    def die(self) -> None:
        """End as a process that is killed may: what is open ends when its time is up."""

    def transact(self) -> None:
        """Carry out a transaction."""
        raise NotImplementedError

    def begin(self) -> None:
        """Get the next epoch; aborts what an earlier process of this id left open."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self._timeout_ms)
        answer = self.until_answered(
            lambda: self.ask_coordinator(TRANSACTION, self.name, request, INIT_PRODUCER_ID_VERSION),
            lambda it: it.error_code,
            f"InitProducerId of {self.name}",
        )
        self._begin_epoch(answer.producer_id, answer.producer_epoch)

    def write(self, place: Place, sent: list[Sent]) -> int:
        """Write a batch to a partition, and return its first offset; raises FencedError."""
        topic, partition = place
        if not self._is_new and place not in self._added:
            self._add(place)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(sent)
        batch = batch_of(sent, self._clock.wall_ms(), self._producer, sequence, is_transactional=True)
        request = produce_request(topic, partition, batch, transactional_id=self.name)
        version = 12 if self._is_new else 11

        def error_of(answer: Any) -> int:
            error: int = answer.responses[0].partition_responses[0].error_code
            return 0 if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER else error

        answer = self._asked(
            lambda: self.ask_leader(topic, partition, request, version), error_of, f"Produce to {place}"
        )
        offset: int = answer.responses[0].partition_responses[0].base_offset
        return offset

    def commit_offset(self, group: str, place: Place, offset: int) -> None:
        """Commit a group's offset within the transaction; raises FencedError."""
        if not self._is_new and not self._has_offsets:
            added = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self._producer[0], producer_epoch=self._producer[1],
                group_id=group,
            )  # fmt: skip
            self._asked(
                lambda: self.ask_coordinator(TRANSACTION, self.name, added, ADD_OFFSETS_VERSION),
                lambda it: it.error_code,
                "AddOffsetsToTxn",
            )
            self._has_offsets = True
        partition = TxnOffsetCommitRequestPartition(
            partition_index=place[1], committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name, group_id=group, producer_id=self._producer[0],
            producer_epoch=self._producer[1], member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=place[0], partitions=[partition])],
        )  # fmt: skip
        self._asked(
            lambda: self.ask_coordinator(GROUP, group, request, 5 if self._is_new else 3),
            lambda it: it.topics[0].partitions[0].error_code,
            "TxnOffsetCommit",
        )

    def end(self, *, is_commit: bool) -> None:
        """End the transaction; raises FencedError."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self._producer[0], producer_epoch=self._producer[1],
            committed=is_commit,
        )  # fmt: skip
        answer = self._asked(
            lambda: self.ask_coordinator(TRANSACTION, self.name, request, 5 if self._is_new else 3),
            lambda it: it.error_code,
            "EndTxn",
        )
        if self._is_new:
            self._begin_epoch(answer.producer_id, answer.producer_epoch)
        self._added.clear()
        self._has_offsets = False

    def succeed(self) -> tuple[int, int]:
        """Begin as another process with this transactional id does; return the former producer id and epoch."""
        former = self._producer
        self.begin()
        if self._producer[0] == former[0] and self._producer[1] <= former[1]:
            self.problems.append(f"zombie: {self.name} got {self._producer} after {former}")
        return former

    def act_as(self, former: tuple[int, int], place: Place, sent: list[Sent]) -> None:
        """Write to a transaction, and commit it, as a former process that does not know of its successor does.

        Its successor must have written to the same place. So the leader knows the successor's epoch.
        """
        batch = batch_of(sent, self._clock.wall_ms(), former, 0, is_transactional=True)
        request = produce_request(*place, batch, transactional_id=self.name)
        answer = self.ask_leader(*place, request, 12 if self._is_new else 11)
        if answer is not None and not answer.responses[0].partition_responses[0].error_code:
            self.problems.append(f"zombie: {self.name} as {former} wrote to {place} after {self._producer} began")
        end = EndTxnRequest(
            transactional_id=self.name, producer_id=former[0], producer_epoch=former[1], committed=True
        )  # fmt: skip
        answer = self.ask_coordinator(TRANSACTION, self.name, end, 5 if self._is_new else 3)
        if answer is not None and not answer.error_code:
            self.problems.append(f"zombie: {self.name} as {former} ended a transaction after {self._producer} began")

    def _add(self, place: Place) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        self._asked(
            lambda: self.ask_coordinator(TRANSACTION, self.name, request, ADD_PARTITIONS_VERSION),
            lambda it: it.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            "AddPartitionsToTxn",
        )
        self._added.add(place)

    def _asked(self, ask: Callable[[], Any], error_of: Callable[[Any], int], what: str) -> Any:
        """Repeat a request until it has an answer; raises FencedError."""
        while True:
            answer = ask()
            if answer is None:
                continue
            error = error_of(answer)
            if error in FENCED:
                self.fenced += 1
                self.trouble = f"{self.name}: {what} was answered with {ErrorCode(error).name}"
                if self._clock.monotonic_ns() < self._began_ns + self._timeout_ms * 1_000_000:
                    self.fenced_early.append(f"fenced early: {self.trouble}, before {self._timeout_ms} ms were over")
                raise FencedError(self.trouble)
            if not self.may_pass(error, what):
                return answer

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._sequences.clear()
        self._producer = (producer_id, epoch)
        self.producer_ids.add(producer_id)
        self._added.clear()
        self._has_offsets = False


class TransactionalProducer(Transactional):
    """Writes to partitions of a topic and reads from them, in transactions that it commits or aborts."""

    def __init__(self, topic: str, partitions: int, journal: TransactionJournal, *arguments: Any, is_new: bool) -> None:
        super().__init__(*arguments, is_new=is_new)
        self._topic = topic
        self._partitions = partitions
        self._journal = journal
        self._positions = [0] * partitions

    def transact(self) -> None:
        """Carry out a transaction."""
        transaction = self._journal.begin(self.name)
        try:
            if not self._draw(SUCCESSIONS):
                transaction.outcome = Outcome.ABORTED
                if self._draw(2):
                    self._steps(transaction)
                self._take_over()
                return
            if self._is_new and not self._draw(EMPTY):
                transaction.outcome = Outcome.ABORTED
                self.end(is_commit=False)
                return
            self._steps(transaction)
            if self._draw(10) < COMMITS_OF_TEN:
                transaction.is_commit_sent = True
                self.end(is_commit=True)
                transaction.outcome = Outcome.COMMITTED
            else:
                self.end(is_commit=False)
                transaction.outcome = Outcome.ABORTED
        except FencedError:
            transaction.outcome = Outcome.UNKNOWN if transaction.is_commit_sent else Outcome.ABORTED
            self.begin()

    def die(self) -> None:
        """See Transactional."""
        if self._timeout_ms <= LAST_TIMEOUT_MS_MAX and self._draw(2):
            transaction = self._journal.begin(self.name)
            transaction.outcome = Outcome.ABORTED
            with contextlib.suppress(FencedError):
                self._write_some(transaction)

    def _take_over(self) -> None:
        """Leave what is open, begin as another process does, and meet the former one in a transaction."""
        former = self.succeed()
        transaction = self._journal.begin(self.name)
        transaction.outcome = Outcome.ABORTED
        place, sent = self._write_some(transaction)
        self.act_as(former, place, sent)
        self.end(is_commit=False)

    def _steps(self, transaction: Transaction) -> None:
        for step in range(1 + self._draw(STEPS_MAX)):
            if step and not self._draw(3):
                self._read(self._draw(self._partitions), transaction)
            else:
                self._write_some(transaction)

    def _write_some(self, transaction: Transaction) -> tuple[Place, list[Sent]]:
        place = (self._topic, self._draw(self._partitions))
        values = [transaction.write(place) for _ in range(1 + self._draw(RECORDS_MAX))]
        sent = [Sent(None, value.encoded(), value) for value in values]
        self.write(place, sent)
        return place, sent

    def _read(self, partition: int, transaction: Transaction) -> None:
        position = self._positions[partition]
        fetched = self.fetch(self._topic, partition, position, READ_COMMITTED)
        if fetched is None:
            return
        self.problems += fetched.problems
        place = (self._topic, partition)
        for got in fetched.records:
            assert got.value is not None
            self._journal.read(self.name, place, got.offset, Value.decoded(got.value), transaction)
        self._positions[partition] = fetched.next_offset


class AbortingJournal(Journal, Protocol):
    """A journal that knows of records of aborted transactions."""

    def aborted(self, sent: Sent) -> None:
        """The record's transaction was aborted."""


class KeyedTransactions(Transactional):
    """Writes to one partition in transactions that it commits or aborts; its journal has their records."""

    def __init__(self, number: int, topic: str, journal: AbortingJournal, *arguments: Any, is_new: bool) -> None:
        super().__init__(*arguments, is_new=is_new)
        self._number = number
        self._place = (topic, 0)
        self._journal = journal

    def transact(self) -> None:
        """Carry out a transaction."""
        sent = [self._journal.next(0, self._number) for _ in range(1 + self._draw(RECORDS_MAX))]
        is_commit = self._draw(10) < COMMITS_OF_TEN
        is_commit_sent = False
        try:
            self.write(self._place, sent)
            if not self._draw(DELAYS) and not self.is_calm:
                self._between.wait(DELAY_S)  # so that the cleaner meets it
            is_commit_sent = is_commit
            self.end(is_commit=is_commit)
        except FencedError:
            if not is_commit_sent:
                self._note_aborted(sent)
            self.begin()
            return
        if is_commit:
            for each in sent:
                self._journal.acknowledged(0, each, None)
        else:
            self._note_aborted(sent)

    def _note_aborted(self, sent: list[Sent]) -> None:
        for each in sent:
            self._journal.aborted(each)


class Copier(Transactional):
    """Copies partitions from one topic to another, exactly once: its offsets are committed with what it writes."""

    def __init__(self, source: str, target: str, partitions: int, *arguments: Any, is_new: bool) -> None:
        super().__init__(*arguments, is_new=is_new)
        self._source = source
        self._target = target
        self._partitions = partitions
        self._positions: dict[int, int] = {}
        self.group = f"group of {self.name}"

    def transact(self) -> None:
        """Copy what there is of a partition."""
        partition = self._draw(self._partitions)
        place = (self._source, partition)
        if partition not in self._positions:
            self._positions[partition] = self.committed_offset(self.group, *place)
        fetched = self.fetch(*place, self._positions[partition], READ_COMMITTED)
        if fetched is None or not fetched.records:
            return
        self.problems += fetched.problems
        count = 1 + self._draw(len(fetched.records))
        taken = fetched.records[:count]
        try:
            self.write((self._target, partition), [Sent(got.key, got.value, got) for got in taken])
            self.commit_offset(self.group, place, taken[-1].offset + 1)
            is_commit = self._draw(10) < COMMITS_OF_TEN
            was_served = not self._draw(QUESTIONS) and self._is_served(place)
            self.end(is_commit=is_commit)
            if was_served:
                self.problems.append(f"unstable offset: of {self.group} for {place}, while its transaction was open")
            if is_commit:
                self._positions[partition] = taken[-1].offset + 1
        except FencedError:
            self.begin()
            self._positions.clear()

    def _is_served(self, place: Place) -> bool:
        """Return whether another process of the group would get an offset now, which the transaction may change."""
        answer = self.ask_for_offset(self.group, *place)
        return answer is not None and not (answer.error_code or answer.topics[0].partitions[0].error_code)
