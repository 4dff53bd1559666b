"""InitProducerId: v0-v6

Behaviour: gives an idempotent producer a new producer id, with epoch 0. A transactional producer gets the producer id
and the next epoch of its transactional id, which fences all earlier producers. If they left a transaction open, it is
aborted first, and the producer must retry (CONCURRENT_TRANSACTIONS).

Version notes: v3 (KIP-360): a producer may send its id and epoch, to raise its epoch after an error. v4
PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. v5 adds TRANSACTION_ABORTABLE. v6 (KIP-939): two-phase commit; it is
unstable, so it needs `unstable.api.versions.enable`.

Errors: INVALID_REQUEST for an empty transactional id, or one of (id, epoch) without the other;
INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS
(also while the broker has no block of producer ids), COORDINATOR_NOT_AVAILABLE (not replicated in time);
TRANSACTIONAL_ID_AUTHORIZATION_FAILED if two-phase commit is not enabled; UNSUPPORTED_VERSION for keeping a prepared
transaction, which Kafka does not implement either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.transactions.shard import ProducerResult
from barnabas.broker.coordinators.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Producer
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

FENCED_FROM = 4


def handle(services: Services, request: Request) -> Park | Reply:
    """Park until the epoch is committed to the log."""
    message: InitProducerIdRequest = request.message
    version = request.version
    expected = Producer(message.producer_id, message.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_EPOCH):
        return Reply(_response(ProducerResult(ErrorCode.INVALID_REQUEST), version))
    deferred = Deferred()
    services.transaction_coordinator.init_producer_id(
        message.transactional_id,
        message.transaction_timeout_ms,
        None if expected.producer_id == NO_PRODUCER_ID else expected,
        lambda result: deferred.complete(_response(result, version)),
        is_two_phase=message.enable2_pc,
        keeps_prepared=message.keep_prepared_txn,
    )
    return Park(deferred)


def _response(result: ProducerResult, version: int) -> InitProducerIdResponse:
    error = result.error
    if error == ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=result.producer_id, producer_epoch=result.epoch)


API = Api(22, "InitProducerId", (0, 6), handle, unstable_since=6)
