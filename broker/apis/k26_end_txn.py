"""EndTxn: v0-v5

Behaviour: commits or aborts a transaction. The request is answered when the decision is committed and can no longer
change; the markers follow. Since v5 each end raises the epoch, and the response has the new one (KIP-890).

While the previous transaction is being completed, no producer is fenced. The request waits for the completion, at most
for add.partitions.to.txn.retry.backoff.max.ms, and then gets CONCURRENT_TRANSACTIONS, which every client retries. That
holds for any producer id and epoch, since v5 has already given the producer its next epoch (or id). Once the
transaction is complete, older epochs are fenced as usual.

Different from Apache Kafka, which answers CONCURRENT_TRANSACTIONS at once.

Version notes: v1 throttle time; v2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; v3 flexible; v4 adds
TRANSACTION_ABORTABLE; v5 the producer id and epoch for the next transaction.

Errors: INVALID_REQUEST (no transactional id), INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE,
CONCURRENT_TRANSACTIONS, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.apis.k24_add_partitions_to_txn import error_for
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.transactions.shard import ProducerResult
    from barnabas.broker.requests.request import Request

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
        lambda result: deferred.complete(_response(result, version)),
    )
    return Park(deferred)


def _response(result: ProducerResult, version: int) -> EndTxnResponse:
    response = EndTxnResponse(error_code=error_for(result.error, version))
    if version >= VERSION_2_FROM:
        response.producer_id, response.producer_epoch = result.producer_id, result.epoch
    return response


API = Api(26, "EndTxn", (0, 5), handle)
