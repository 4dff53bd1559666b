"""AllocateProducerIds: v0

Behaviour: gives a broker the next block of producer ids (KIP-730).

Errors: STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later
from barnabas.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have a block allocated."""
    message = request.message
    return decide_later(
        services,
        "allocateProducerIds",
        lambda view: allocate_producer_ids(view, message.broker_id, message.broker_epoch),
        answer,
    )


def answer(block: ProducerIdBlock) -> AllocateProducerIdsResponse:
    """The response for a block."""
    return AllocateProducerIdsResponse(producer_id_start=block.first_id, producer_id_len=block.size)


API = Api(67, "AllocateProducerIds", (0, 0), handle, operation="CLUSTER_ACTION", resource="CLUSTER")
