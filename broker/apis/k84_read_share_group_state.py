"""ReadShareGroupState: v0

Behaviour: returns the state of share partitions to their leader, and fences leaders of older epochs (KIP-932). Only
brokers send it.

Errors (each on a partition): NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
FENCED_LEADER_EPOCH (a newer leader has read), UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (never initialized).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.share_state import carry_out, text_of
from barnabas.broker.coordinators.share_state.operations import Read
from barnabas.broker.requests.api import Api, nodes_only
from barnabas.protocol.messages.k84_read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateRead
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Park until what is read is committed."""
    return carry_out(
        services,
        request,
        _operation,
        response=ReadShareGroupStateResponse,
        topic_result=ReadStateResult,
        partition_result=_result,
    )


def _operation(key: SharePartitionKey, partition: Any, reply: Completion[StateRead]) -> Read:
    return Read(key, reply, partition.leader_epoch)


def _result(partition: int, read: StateRead) -> PartitionResult:
    if read.error:
        return PartitionResult(partition=partition, error_code=read.error, error_message=text_of(read.error))
    return PartitionResult(
        partition=partition,
        error_code=0,
        state_epoch=read.state_epoch,
        start_offset=read.start_offset,
        state_batches=[
            StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in read.batches
        ],
    )


API = Api(84, "ReadShareGroupState", (0, 0), handle, nodes_only=nodes_only)
