"""AddOffsetsToTxn: v0-v4

Behaviour: adds the partition of __consumer_offsets that holds a group's offsets to a transaction, so that offsets can
be committed in it (KIP-98). Clients of transaction.version 2 do not send it: TxnOffsetCommit adds the partition.

Version notes: v1 throttle time; v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4 adds
TRANSACTION_ABORTABLE.

Errors: as AddPartitionsToTxn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.k24_add_partitions_to_txn import error_for
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Park:
    """Park until the change is committed."""
    message: AddOffsetsToTxnRequest = request.message
    version = request.version
    deferred = Deferred()
    services.transaction_coordinator.add_partitions(
        message.transactional_id,
        Producer(message.producer_id, message.producer_epoch),
        [TopicPartition(GROUP_METADATA_TOPIC, services.group_coordinator.partition_for(message.group_id))],
        0,
        lambda error: deferred.complete(AddOffsetsToTxnResponse(error_code=error_for(error, version))),
    )
    return Park(deferred)


API = Api(25, "AddOffsetsToTxn", (0, 4), handle)
