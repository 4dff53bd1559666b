"""AddPartitionsToTxn: v0-v5

Behaviour: adds partitions to a transaction; the first ones begin it. Brokers send v4 and later, for several
transactions at once. Before a leader appends the first records of a transaction, it checks that the partition is part
of it (`verify_only`), or adds the partition for a client of transaction.version 2. If one partition is unknown, none is
added. A transaction that begins while the previous one is being completed waits for it, as in EndTxn (k26).

Version notes: v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4 (KIP-890) many transactions; v5
adds TRANSACTION_ABORTABLE.

Errors (each on the partitions): UNKNOWN_TOPIC_OR_PARTITION, OPERATION_NOT_ATTEMPTED (another one is unknown),
INVALID_REQUEST (no transactional id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS,
NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE; TRANSACTION_ABORTABLE for a partition that is
not part of the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.requests.parking import Park
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.requests.request import Request

FENCED_FROM: Final = 2
FROM_BROKERS_FROM: Final = 4
VERSION_2_FROM: Final = 5

Errors = Mapping[TopicPartition, ErrorCode]


def handle(services: Services, request: Request) -> Park | Reply:
    """Park until every transaction's change is committed."""
    message: AddPartitionsToTxnRequest = request.message
    version = request.version
    if version >= FROM_BROKERS_FROM:
        transactions = list({t.transactional_id: t for t in message.transactions}.values())
    else:
        transactions = [
            AddPartitionsToTxnTransaction(
                transactional_id=message.v3_and_below_transactional_id, producer_id=message.v3_and_below_producer_id,
                producer_epoch=message.v3_and_below_producer_epoch, topics=message.v3_and_below_topics,
            )
        ]  # fmt: skip
    deferred = Deferred()
    gathering: Gathering[str, Errors] = Gathering(
        len(transactions), lambda errors: deferred.complete(_response(transactions, errors, version))
    )
    for transaction in transactions:
        _handle_one(services, request, transaction, partial(gathering.add, transaction.transactional_id))
    return Park(deferred)


def _handle_one(
    services: Services, request: Request, transaction: AddPartitionsToTxnTransaction, done: Completion[Errors]
) -> None:
    snapshot = services.metadata_cache.snapshot
    version = request.version
    partitions = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    access = request.access if version < FROM_BROKERS_FROM else None  # that of brokers is checked by now
    if access is not None and not access.allows(rights.ADD_PARTITIONS, transaction.transactional_id):
        done(dict.fromkeys(partitions, rights.ADD_PARTITIONS.error))
        return
    errors = {tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for tp in partitions if snapshot.partition(tp) is None}
    if version < FROM_BROKERS_FROM:  # no client may write to internal topics
        names = [topic.name for topic in transaction.topics if topic.name not in INTERNAL_TOPICS]
        allowed = set(names) if access is None else access.allowed(rights.ADD_PARTITIONS_TOPIC, names)
        errors |= {tp: rights.ADD_PARTITIONS_TOPIC.error for tp in partitions if tp.topic not in allowed}
    if errors:
        done({tp: errors.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in partitions})
        return
    coordinator = services.transaction_coordinator
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        done(coordinator.verify(transaction.transactional_id, producer, partitions))
        return
    coordinator.add_partitions(
        transaction.transactional_id, producer, partitions, 2 if version >= VERSION_2_FROM else 0,
        lambda error: done(dict.fromkeys(partitions, error)),
    )  # fmt: skip


def _response(
    transactions: list[AddPartitionsToTxnTransaction], errors: Mapping[str, Errors], version: int
) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=_topics(transaction, errors[transaction.transactional_id], version),
        )
        for transaction in transactions
    ]
    if version >= FROM_BROKERS_FROM:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _topics(
    transaction: AddPartitionsToTxnTransaction, errors: Errors, version: int
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=error_for(errors[TopicPartition(topic.name, index)], version),
                )
                for index in topic.partitions
            ],
        )
        for topic in transaction.topics
    ]


def error_for(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error as a client of this version knows it."""
    is_old = version < FENCED_FROM and error == ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else error


def _is_from_broker(request: Request) -> bool:
    return request.version >= FROM_BROKERS_FROM


API = Api(
    24,
    "AddPartitionsToTxn",
    (0, 5),
    handle,
    nodes_only=_is_from_broker,
)
