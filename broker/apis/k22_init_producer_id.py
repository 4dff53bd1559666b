"""InitProducerId: v0-v6

Behaviour: gives an idempotent producer its producer id, with epoch 0. A transactional producer gets the id and the next
epoch of its transactional id, which fences every producer that had it before; a transaction that it left open is
aborted first, and the producer is to come again (CONCURRENT_TRANSACTIONS).

Version notes: v3 (KIP-360): a producer may name the id and epoch it has, to raise its epoch after an error. v4
PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. v5 TRANSACTION_ABORTABLE is known. v6 (KIP-939): two-phase commit.

Errors: INVALID_REQUEST for an empty transactional id or half of (id, epoch); INVALID_TRANSACTION_TIMEOUT,
CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS (also while no block of ids is
here), COORDINATOR_NOT_AVAILABLE (not replicated in time); TRANSACTIONAL_ID_AUTHORIZATION_FAILED for two-phase commit
where it is not enabled; UNSUPPORTED_VERSION for keeping a prepared transaction, which Kafka has not built either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Park, Reply
from barnabas.broker.apis.api import Api
from barnabas.broker.coordinators.transaction import NO_EPOCH, NO_PRODUCER_ID, Producer
from barnabas.broker.coordinators.transaction_shard import Given
from barnabas.broker.purgatory import Deferred
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request

FENCED_FROM = 4


def handle(services: Services, request: Request) -> Park | Reply:
    """Park until the epoch is committed to the log."""
    message: InitProducerIdRequest = request.message
    version = request.version
    expected = Producer(message.producer_id, message.producer_epoch)
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_EPOCH):
        return Reply(_response(Given(ErrorCode.INVALID_REQUEST), version))
    deferred = Deferred()
    services.transaction_coordinator.init_producer_id(
        message.transactional_id,
        message.transaction_timeout_ms,
        None if expected.producer_id == NO_PRODUCER_ID else expected,
        lambda given: deferred.complete(_response(given, version)),
        is_two_phase=message.enable2_pc,
        keeps_prepared=message.keep_prepared_txn,
    )
    return Park(deferred)


def _response(given: Given, version: int) -> InitProducerIdResponse:
    error = given.error
    if error == ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=given.producer_id, producer_epoch=given.epoch)


API = Api(22, "InitProducerId", (0, 6), handle, operation="IDEMPOTENT_WRITE", resource="CLUSTER")
