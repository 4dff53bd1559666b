"""Encodes and decodes the records of __transaction_state.

Version 0 of the value has no previous and next producer ids. It is written until transaction.version 1 is finalized.

Source: Kafka's TransactionLog (4.3), KIP-890.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.coordinators.transactions.transaction import (
    DEAD,
    EMPTY,
    PREPARE_EPOCH_FENCE,
    STATES_BY_CODE,
    TxnData,
)
from barnabas.common.topic_partition import TopicPartition, partitions_by_topic
from barnabas.protocol.coordinator_records.record import decode_versioned, encode_versioned, read_prefix
from barnabas.protocol.coordinator_records.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.protocol.errors import MalformedMessageError

KEY_VERSION: Final = 0


def key(transactional_id: str) -> bytes:
    """Encode the key of an id's records."""
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id))


def value(data: TxnData, transaction_version: int) -> bytes:
    """Encode the value; `transaction_version` is the finalized level of the feature."""
    by_topic = partitions_by_topic(sorted(data.partitions))
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    message = TransactionLogValue(
        producer_id=data.producer_id,
        producer_epoch=data.producer_epoch,
        transaction_timeout_ms=data.timeout_ms,
        transaction_status=data.state.code,
        transaction_partitions=None if data.state is EMPTY else partitions,
        transaction_last_update_timestamp_ms=data.update_ms,
        transaction_start_timestamp_ms=data.start_ms,
    )
    if transaction_version < 1:
        return encode_versioned(message, 0)
    message.previous_producer_id = data.previous_producer_id
    message.next_producer_id = data.next_producer_id
    message.client_transaction_version = data.client_version
    return encode_versioned(message, 1)


def read(key_bytes: bytes, value_bytes: bytes | None) -> tuple[str, TxnData | None] | None:
    """Decode a record to (transactional id, its state, None if the id is removed); None for a record of another type.

    Raises MalformedMessageError.
    """
    if read_prefix(key_bytes) != KEY_VERSION:
        return None
    transactional_id = decode_versioned(TransactionLogKey, key_bytes).transactional_id
    if value_bytes is None:
        return transactional_id, None
    message = decode_versioned(TransactionLogValue, value_bytes)
    state = STATES_BY_CODE.get(message.transaction_status)
    if state is DEAD:
        return transactional_id, None
    if state is None or state is PREPARE_EPOCH_FENCE:  # neither is ever written by a coordinator
        raise MalformedMessageError(f"{transactional_id!r} is in state {message.transaction_status}")
    return transactional_id, TxnData(
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in message.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=message.transaction_start_timestamp_ms,
        update_ms=message.transaction_last_update_timestamp_ms,
        client_version=message.client_transaction_version,
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
    )
