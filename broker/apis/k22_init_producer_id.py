"""InitProducerId: v0-v6

Behaviour: gives an idempotent producer its producer id, with epoch 0.

Version notes: v3 (KIP-360): a producer may name the id and epoch it has. v6 (KIP-939): two-phase commit fields.

Errors: INVALID_REQUEST for an empty transactional id or half of (id, epoch); COORDINATOR_LOAD_IN_PROGRESS while no
block
of ids is here; UNSUPPORTED_VERSION for a transactional id.

Different from Apache Kafka: there is no transaction coordinator yet, and the APIs of transactions are not advertised. A
transactional producer is told so at once, by an error that its client does not retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.answers import Answer, Reply
from broker.apis.api import Api

if TYPE_CHECKING:
    from broker.apis.services import Services
    from broker.request_channel import Request


def handle(services: Services, request: Request) -> Answer:
    """Give an id."""
    message: InitProducerIdRequest = request.message
    try:
        _check(message)
        producer_id = services.producer_ids.take()
    except ApiError as error:
        return Reply(InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1))
    return Reply(InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0))


def _check(message: InitProducerIdRequest) -> None:
    if message.transactional_id == "":
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if (message.producer_id == -1) != (message.producer_epoch == -1):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)


API = Api(22, "InitProducerId", (0, 6), handle, operation="IDEMPOTENT_WRITE", resource="CLUSTER")
