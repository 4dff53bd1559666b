"""Verifies with a transaction's coordinator that a partition is part of it, before its first records are appended.

Theory (KIP-890)
A late request, or a producer that was believed dead, may send records for a transaction that has ended. Appending them
would begin a transaction that is never ended, and block every read_committed reader of the partition for ever. So the
partition's leader asks the coordinator before the first batch of a transaction (`VERIFY`), or has the partition added
(`ADD`, transaction.version 2, where the client does not do it). The log creates a guard before the query and drops it
at the next marker, so the guard shows whether the answer still holds when the batch is appended.

Rules
1. An ADD that arrives while the previous transaction is being completed is retried for a while
   (add.partitions.to.txn.retry.backoff.max.ms), so that the client need not. The guards are created again each time
   (`VerificationQuery.renew`), since the marker that the retry waits for drops the earlier ones.
2. A coordinator on this broker is called directly. Another broker gets an AddPartitionsToTxn; all queries that wait for
   the same broker go in one request.
3. A query that could not be sent ends with an error that clients retry: NETWORK_EXCEPTION, COORDINATOR_NOT_AVAILABLE.

Threads: any calls; answers come on the caller's thread or on `AddPartitionsToTxnSenderThread-<id>-to-<broker>`.
Source: Kafka's AddPartitionsToTxnManager (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.channels.broker_senders import BrokerSenders
from barnabas.broker.coordinators.runtime.completion import Completion
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.metadata.metadata_cache import TRANSACTION_STATE_TOPIC
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.clock import NS_PER_MS
from barnabas.common.topic_partition import TopicPartition, partitions_by_topic
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.client.connection import TrafficObserver
    from barnabas.common.clock import Clock
    from barnabas.config import Config

log = logging.getLogger("barnabas.transaction.verification")

REQUEST_VERSION: Final = 5
CLIENT_VERSION_OF_ADD: Final = 2  # only clients of transaction.version 2 leave the addition to the brokers

Errors = dict[TopicPartition, ErrorCode]


class Operation(Enum):
    """What to ask for, depending on the version of the client's request."""

    VERIFY_OLD = "verify; the client does not know TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "add"

    @property
    def adds(self) -> bool:
        """Whether the partitions are to be added."""
        return self is Operation.ADD


class VerificationQuery(NamedTuple):
    """The partitions of one transaction that one request will write to."""

    transactional_id: str
    producer: Producer
    partitions: Collection[TopicPartition]
    operation: Operation
    reply: Completion[Errors]  # the error of each partition; NONE for a verified one
    renew: Callable[[], object] = lambda: None  # called before each retry, on any thread


class TransactionVerification:
    """Sends verification queries to the coordinators; see the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        clock: Clock,
        metadata_cache: MetadataCache,
        coordinator: TransactionCoordinator,
        scheduler: TaskScheduler,
        config: Config,
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
        self._senders: BrokerSenders[VerificationQuery] = BrokerSenders(
            "AddPartitionsToTxnSenderThread", "txn-add", broker_id, clock,
            node_of=lambda id_: metadata_cache.snapshot.node(id_, listener_name), carry=self._carry,
            request_timeout_ms=request_timeout_ms, connect=connect,
        )  # fmt: skip
        self._took_ms: Callable[[float], None] = lambda _ms: None  # fixed before start
        self._failed: Callable[[int], None] = lambda _count: None  # fixed before start

    def shutdown(self) -> None:
        """End the threads; pending queries are not answered."""
        self._senders.shutdown()

    def set_sensors(
        self, took_ms: Callable[[float], None], failed: Callable[[int], None], traffic: TrafficObserver
    ) -> None:
        """Set what records the duration of each query, its refused partitions, and the traffic to coordinators.

        Call it before the start.
        """
        self._took_ms, self._failed, self._senders.traffic = took_ms, failed, traffic

    def _measured(self, reply: Completion[Errors], started_ns: int, errors: Errors) -> None:
        self._took_ms((self._clock.monotonic_ns() - started_ns) / NS_PER_MS)
        failures = sum(error != ErrorCode.NONE for error in errors.values())
        if failures:
            self._failed(failures)
        reply(errors)

    def ask(self, query: VerificationQuery) -> None:
        """Ask the coordinator; the query may be answered before this returns."""
        query = query._replace(reply=partial(self._measured, query.reply, self._clock.monotonic_ns()))
        if query.operation.adds:
            give_up_ms = self._clock.monotonic_ms() + self._config.add_partitions_to_txn_retry_backoff_max_ms
            query = query._replace(reply=partial(self._take_added, query, give_up_ms))
        self._ask_once(query)

    def _take_added(self, query: VerificationQuery, give_up_ms: int, errors: Errors) -> None:
        """Handle the answer to an ADD; retry while the previous transaction does not have all its markers."""
        backoff_ms = self._config.add_partitions_to_txn_retry_backoff_ms
        is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if not is_busy or self._clock.monotonic_ms() + backoff_ms > give_up_ms:
            query.reply(errors)
            return
        again = query._replace(reply=partial(self._take_added, query, give_up_ms))
        self._scheduler.schedule_once("add-partitions-to-txn", lambda: self._ask_again(again), backoff_ms)

    def _ask_again(self, query: VerificationQuery) -> None:
        query.renew()
        self._ask_once(query)

    def _ask_once(self, query: VerificationQuery) -> None:
        partition = self._coordinator.partition_for(query.transactional_id)
        snapshot = self._metadata_cache.snapshot
        info = snapshot.partition(TopicPartition(TRANSACTION_STATE_TOPIC, partition))
        if info is not None and info.leader == self._broker_id:
            self._ask_here(query)
        elif info is None or snapshot.node(info.leader, self._listener_name) is None:
            query.reply(dict.fromkeys(query.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._senders.send(info.leader, query)

    def _ask_here(self, query: VerificationQuery) -> None:
        coordinator, partitions = self._coordinator, query.partitions
        if query.operation.adds:
            coordinator.add_partitions(
                query.transactional_id, query.producer, partitions, CLIENT_VERSION_OF_ADD,
                lambda error: _reply(query, dict.fromkeys(partitions, error)),
            )  # fmt: skip
        else:
            _reply(query, coordinator.verify(query.transactional_id, query.producer, partitions))

    # On a sender's thread

    def _carry(self, _destination: int, connection: NodeConnection | None, items: list[VerificationQuery]) -> None:
        while items:
            once = {query.transactional_id: query for query in reversed(items)}  # the answer is by this id
            items = [query for query in items if once[query.transactional_id] is not query]
            self._send_request(connection, list(once.values()))

    def _send_request(self, connection: NodeConnection | None, queries: list[VerificationQuery]) -> None:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        response: AddPartitionsToTxnResponse | None = None
        if connection is not None:
            request = AddPartitionsToTxnRequest(transactions=[_wire(query) for query in queries])
            try:
                response = connection.send(request, REQUEST_VERSION)
                error = ErrorCode.of(response.error_code)
            except NodeConnectionError as failure:
                log.info("a transaction's partitions could not be verified: %s", failure)
                error = ErrorCode.NETWORK_EXCEPTION
        results = {} if response is None else {r.transactional_id: r for r in response.results_by_transaction}
        for query in queries:
            result = results.get(query.transactional_id)
            if error or result is None:
                errors = dict.fromkeys(query.partitions, error or ErrorCode.NETWORK_EXCEPTION)
            else:
                errors = {
                    TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.partition_error_code)
                    for topic in result.topic_results
                    for row in topic.results_by_partition
                }
            _reply(query, errors)


def _reply(query: VerificationQuery, errors: Errors) -> None:
    """Reply with errors that the client's request knows."""
    for tp, error in errors.items():
        if error == ErrorCode.PRODUCER_FENCED:
            errors[tp] = ErrorCode.INVALID_PRODUCER_EPOCH
        elif error == ErrorCode.TRANSACTION_ABORTABLE and query.operation is Operation.VERIFY_OLD:
            errors[tp] = ErrorCode.INVALID_TXN_STATE
    query.reply(errors)


def _wire(query: VerificationQuery) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=query.transactional_id,
        producer_id=query.producer.producer_id,
        producer_epoch=query.producer.epoch,
        verify_only=not query.operation.adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=ids)
            for name, ids in partitions_by_topic(query.partitions).items()
        ],
    )
