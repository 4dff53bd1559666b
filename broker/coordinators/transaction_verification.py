"""Asking a transaction's coordinator whether a partition is part of it, before its first records are appended.

Theory (KIP-890)
A producer that was thought dead, or a request that was long on its way, may bring records for a transaction that has
ended. Appended, they would begin a transaction that nobody ends, and hold every read_committed reader of the partition
for ever. So the leader of a partition asks the coordinator before the first batch of a transaction (`VERIFY`), or has
the partition added there and then (`ADD`, transaction.version 2: the client does not do it itself). A guard that the
log drew beforehand, and drops at the next marker, tells whether the answer still holds when the batch is appended.

Rules
1. An ADD that comes while the transaction before is being concluded is tried again for a while
   (add.partitions.to.txn.retry.backoff.max.ms), so that the client need not. Guards are drawn anew each time
   (`Question.renew`): the marker that is waited for drops those drawn before it.
2. A coordinator on this broker is asked directly; another one by AddPartitionsToTxn, all transactions that wait for the
   same broker in one request.
3. What failed to be asked may be tried again by the client: NETWORK_EXCEPTION, COORDINATOR_NOT_AVAILABLE.

Threads: any asks; answers come on the asker's thread or on `AddPartitionsToTxnSenderThread-<id>-to-<broker>`.
Source: Kafka's AddPartitionsToTxnManager (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.broker_senders import BrokerSenders
from barnabas.broker.coordinators.transaction import Producer
from barnabas.broker.metadata_cache import TRANSACTION_STATE_TOPIC
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.clock import NS_PER_MS
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from barnabas.broker.metadata_cache import MetadataCache
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.client.connection import TrafficObserver
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.transaction.verification")

REQUEST_VERSION: Final = 5
CLIENT_VERSION_OF_ADD: Final = 2  # only clients of transaction.version 2 leave adding to the brokers

Errors = dict[TopicPartition, ErrorCode]


class Operation(Enum):
    """What the client's request allows."""

    VERIFY_OLD = "verify; the client does not know TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "add"

    @property
    def adds(self) -> bool:
        return self is Operation.ADD


class Question(NamedTuple):
    """Partitions of one transaction that one request wants to write to."""

    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    operation: Operation
    reply: Callable[[Errors], object]  # called once, on any thread; partitions that are in order have NONE
    renew: Callable[[], object] = lambda: None  # called before it is asked again, on any thread


class TransactionVerification:
    """See the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        clock: Clock,
        metadata_cache: MetadataCache,
        coordinator: TransactionCoordinator,
        scheduler: TaskScheduler,
        config: Any,
        listener_name: str,
        request_timeout_ms: int,
        connect: Connect = NodeConnection,
    ) -> None:
        self._clock = clock  # fixed before start
        self._scheduler = scheduler  # fixed before start
        self._config = config  # fixed before start
        self._broker_id = broker_id  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._coordinator = coordinator  # fixed before start
        self._listener_name = listener_name  # fixed before start
        self._senders: BrokerSenders[Question] = BrokerSenders(
            "AddPartitionsToTxnSenderThread", "txn-add", broker_id, clock,
            node_of=lambda id_: metadata_cache.snapshot.node(id_, listener_name), carry=self._carry,
            request_timeout_ms=request_timeout_ms, connect=connect,
        )  # fmt: skip

        self._took_ms: Callable[[float], None] = lambda _ms: None  # fixed before start
        self._failed: Callable[[int], None] = lambda _count: None  # fixed before start

    def shutdown(self) -> None:
        """End the threads; questions on their way are not answered."""
        self._senders.shutdown()

    def measure(
        self, took_ms: Callable[[float], None], failed: Callable[[int], None], traffic: TrafficObserver
    ) -> None:
        """Have the time of each question told, how many of its partitions were refused, and what went over the
        connections to other coordinators; before the start.
        """
        self._took_ms, self._failed, self._senders.traffic = took_ms, failed, traffic

    def _measured(self, reply: Callable[[Errors], object], started_ns: int, errors: Errors) -> None:
        self._took_ms((self._clock.monotonic_ns() - started_ns) / NS_PER_MS)
        failures = sum(error != ErrorCode.NONE for error in errors.values())
        if failures:
            self._failed(failures)
        reply(errors)

    def ask(self, question: Question) -> None:
        """Ask the coordinator; `question.reply` may be called before this returns."""
        question = question._replace(reply=partial(self._measured, question.reply, self._clock.monotonic_ns()))
        if question.operation.adds:
            give_up_ms = self._clock.monotonic_ms() + self._config.add_partitions_to_txn_retry_backoff_max_ms
            question = question._replace(reply=partial(self._take_added, question, give_up_ms))
        self._ask_once(question)

    def _take_added(self, question: Question, give_up_ms: int, errors: Errors) -> None:
        """Take the answer to an ADD. The transaction before may not have all its markers yet: that is worth waiting."""
        backoff_ms = self._config.add_partitions_to_txn_retry_backoff_ms
        is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if not is_busy or self._clock.monotonic_ms() + backoff_ms > give_up_ms:
            question.reply(errors)
            return
        again = question._replace(reply=partial(self._take_added, question, give_up_ms))
        self._scheduler.schedule_once("add-partitions-to-txn", lambda: self._ask_again(again), backoff_ms)

    def _ask_again(self, question: Question) -> None:
        question.renew()
        self._ask_once(question)

    def _ask_once(self, question: Question) -> None:
        partition = self._coordinator.partition_for(question.transactional_id)
        snapshot = self._metadata_cache.snapshot
        info = snapshot.partition(TopicPartition(TRANSACTION_STATE_TOPIC, partition))
        if info is not None and info.leader == self._broker_id:
            self._ask_here(question)
        elif info is None or snapshot.node(info.leader, self._listener_name) is None:
            question.reply(dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._senders.send(info.leader, question)

    def _ask_here(self, question: Question) -> None:
        coordinator, partitions = self._coordinator, question.partitions
        if question.operation.adds:
            coordinator.add_partitions(
                question.transactional_id, question.producer, partitions, CLIENT_VERSION_OF_ADD,
                lambda error: _tell(question, dict.fromkeys(partitions, error)),
            )  # fmt: skip
        else:
            _tell(question, coordinator.verify(question.transactional_id, question.producer, partitions))

    # On a sender's thread

    def _carry(self, _destination: int, connection: NodeConnection | None, items: list[Question]) -> None:
        while items:
            once = {question.transactional_id: question for question in reversed(items)}  # the answer is by this id
            items = [question for question in items if once[question.transactional_id] is not question]
            self._send_request(connection, list(once.values()))

    def _send_request(self, connection: NodeConnection | None, questions: list[Question]) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        response: Any = None
        if connection is not None:
            request = AddPartitionsToTxnRequest(transactions=[_wire(question) for question in questions])
            try:
                response = connection.send(request, REQUEST_VERSION)
                error = ErrorCode(response.error_code)
            except NodeConnectionError as failure:
                log.info("a transaction's partitions could not be verified: %s", failure)
                error = ErrorCode.NETWORK_EXCEPTION
        results = {} if response is None else {r.transactional_id: r for r in response.results_by_transaction}
        for question in questions:
            result = results.get(question.transactional_id)
            if error or result is None:
                errors = dict.fromkeys(question.partitions, error or ErrorCode.NETWORK_EXCEPTION)
            else:
                errors = {
                    TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
                    for topic in result.topic_results
                    for row in topic.results_by_partition
                }
            _tell(question, errors)


def _tell(question: Question, errors: Errors) -> None:
    """Reply in words that the client's request knows."""
    for tp, error in errors.items():
        if error == ErrorCode.PRODUCER_FENCED:
            errors[tp] = ErrorCode.INVALID_PRODUCER_EPOCH
        elif error == ErrorCode.TRANSACTION_ABORTABLE and question.operation is Operation.VERIFY_OLD:
            errors[tp] = ErrorCode.INVALID_TXN_STATE
    question.reply(errors)


def _wire(question: Question) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for tp in question.partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.epoch,
        verify_only=not question.operation.adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=ids) for name, ids in by_topic.items()],
    )
