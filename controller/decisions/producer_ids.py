"""Producer ids: brokers get blocks of 1000 ids, and the cluster never uses an id twice.

A block is in the log before it is in a response. A controller that dies in between loses ids, but allocates none twice.

Source: ProducerIdControlManager (Kafka 4.3); KIP-730.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.controller.decision import Decision, View, check_broker_epoch
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.metadata_records import ProducerIdsRecord

BLOCK_SIZE: Final = 1000
_MAX_ID: Final = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """The ids from first_id to first_id + size - 1."""

    first_id: int
    size: int


def allocate_producer_ids(view: View, broker_id: int, broker_epoch: int) -> Decision[ProducerIdBlock]:
    """Allocate the next block to a broker; raises STALE_BROKER_EPOCH."""
    check_broker_epoch(view.image, broker_id, broker_epoch)
    first_id = view.image.next_producer_id
    if first_id > _MAX_ID - BLOCK_SIZE:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Exhausted all producerIds as the next block's end producerId has exceeded {_MAX_ID}",
        )
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first_id + BLOCK_SIZE)
    return Decision([record], ProducerIdBlock(first_id, BLOCK_SIZE))
