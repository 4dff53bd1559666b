"""AllocateProducerIds: v0

Behaviour: allocates the next block of producer ids to a broker (KIP-730).

Errors: STALE_BROKER_EPOCH.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, check_cluster, decide_later
from barnabas.controller.decisions.producer_ids import ProducerIdBlock, allocate_producer_ids
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the allocation."""
    check_cluster(services, request)
    message = request.message
    return decide_later(
        services,
        "allocateProducerIds",
        lambda view: allocate_producer_ids(view, message.broker_id, message.broker_epoch),
        answer,
    )


def answer(block: ProducerIdBlock) -> AllocateProducerIdsResponse:
    """Return the response for a block."""
    return AllocateProducerIdsResponse(producer_id_start=block.first_id, producer_id_len=block.size)


API = Api(67, "AllocateProducerIds", (0, 0), handle, nodes_only=nodes_only)
