"""ReadShareGroupStateSummary: v0-v1

Behaviour: returns the state of share partitions without their batches, for the group coordinator (KIP-932). A share
partition that was never initialized has the start offset -1. It fences nobody. Only brokers send it.

Version notes: v1 (KIP-1226) has the number of records from the start offset on whose delivery is complete.

Errors (each on a partition): NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.share_state import carry_out, text_of
from barnabas.broker.coordinators.share_state.operations import ReadSummary
from barnabas.broker.requests.api import Api, nodes_only
from barnabas.protocol.messages.k87_read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateSummary
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Park until what is read is committed."""
    return carry_out(
        services,
        request,
        _operation,
        response=ReadShareGroupStateSummaryResponse,
        topic_result=ReadStateSummaryResult,
        partition_result=_result,
    )


def _operation(key: SharePartitionKey, partition: Any, reply: Completion[StateSummary]) -> ReadSummary:
    return ReadSummary(key, reply, partition.leader_epoch)


def _result(partition: int, summary: StateSummary) -> PartitionResult:
    if summary.error:
        return PartitionResult(partition=partition, error_code=summary.error, error_message=text_of(summary.error))
    return PartitionResult(
        partition=partition,
        error_code=0,
        state_epoch=summary.state_epoch,
        leader_epoch=summary.leader_epoch,
        start_offset=summary.start_offset,
        delivery_complete_count=summary.delivery_complete_count,
    )


API = Api(87, "ReadShareGroupStateSummary", (0, 1), handle, nodes_only=nodes_only)
