"""EndTxn: v0-v5

Behaviour: commits or aborts a transaction. Answered when it is in the log how it ends, which nothing can change any
more; the markers follow. From v5 on the epoch is raised with it, and the answer tells the producer (KIP-890).

While the transaction before is being concluded nobody is fenced: an end waits for it, at most for
add.partitions.to.txn.retry.backoff.max.ms, and is then told CONCURRENT_TRANSACTIONS, which every client repeats. That
holds for any producer id and epoch, since v5 has already told the producer the epoch (or id) that comes next. Once the
transaction is concluded, older epochs are fenced, as always.

Different from Apache Kafka, which says CONCURRENT_TRANSACTIONS at once instead of waiting first.

Version notes: v1 throttle time; v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4
TRANSACTION_ABORTABLE is known; v5 producer id and epoch to go on with.

Errors: INVALID_REQUEST (no transactional id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE,
CONCURRENT_TRANSACTIONS, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.answers import Park
from barnabas.broker.apis.api import Api
from barnabas.broker.apis.k24_add_partitions_to_txn import told
from barnabas.broker.coordinators.transaction import Producer
from barnabas.broker.purgatory import Deferred
from barnabas.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.transaction_shard import Given
    from barnabas.broker.request_channel import Request

VERSION_2_FROM: Final = 5


def handle(services: Services, request: Request) -> Park:
    """Park until the decision is committed."""
    message: EndTxnRequest = request.message
    version = request.version
    deferred = Deferred()
    services.transaction_coordinator.end(
        message.transactional_id,
        Producer(message.producer_id, message.producer_epoch),
        message.committed,
        2 if version >= VERSION_2_FROM else 0,
        lambda given: deferred.complete(_response(given, version)),
    )
    return Park(deferred)


def _response(given: Given, version: int) -> EndTxnResponse:
    response = EndTxnResponse(error_code=told(given.error, version))
    if version >= VERSION_2_FROM:
        response.producer_id, response.producer_epoch = given.producer_id, given.epoch
    return response


API = Api(26, "EndTxn", (0, 5), handle, operation="WRITE", resource="TRANSACTIONAL_ID")
