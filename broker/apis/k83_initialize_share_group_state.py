"""InitializeShareGroupState: v0

Behaviour: begins a state epoch of share partitions, for the group coordinator (KIP-932). The share coordinator writes a
snapshot without batches. Only brokers send it.

Errors (each on a partition): NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
FENCED_STATE_EPOCH (a newer epoch has begun), UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.

Different from Apache Kafka: a request in a state epoch that has begun changes nothing, unless its start offset is a
later one, since it can only be a late one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.share_state import carry_out, text_of
from barnabas.broker.coordinators.share_state.operations import Initialize
from barnabas.broker.requests.api import Api, nodes_only
from barnabas.protocol.messages.k83_initialize_share_group_state import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.values import SharePartitionKey
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.errors import ErrorCode


def handle(services: Services, request: Request) -> Answer:
    """Park until the snapshots are committed."""
    return carry_out(
        services,
        request,
        _operation,
        response=InitializeShareGroupStateResponse,
        topic_result=InitializeStateResult,
        partition_result=_result,
    )


def _operation(key: SharePartitionKey, partition: Any, reply: Completion[ErrorCode]) -> Initialize:
    return Initialize(key, reply, partition.state_epoch, partition.start_offset)


def _result(partition: int, error: ErrorCode) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error, error_message=text_of(error))


API = Api(83, "InitializeShareGroupState", (0, 0), handle, nodes_only=nodes_only)
