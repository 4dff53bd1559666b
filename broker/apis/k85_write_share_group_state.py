"""WriteShareGroupState: v0-v1

Behaviour: changes the state of share partitions, for their leader (KIP-932). The share coordinator writes an update, or
a snapshot every `share.coordinator.snapshot.update.records.per.snapshot` updates. Only brokers send it.

Version notes: v1 (KIP-1226) has the number of records from the start offset on whose delivery is complete.

Errors (each on a partition): NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (never initialized).

Different from Apache Kafka: within a state epoch the start offset never moves back, since only a late request asks for
that. A batch that ends before it begins gets INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.share_state import carry_out, text_of
from barnabas.broker.coordinators.share_state.operations import Write
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateWrite, batches_of
from barnabas.broker.requests.api import Api, nodes_only
from barnabas.protocol.messages.k85_write_share_group_state import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.errors import ErrorCode


def handle(services: Services, request: Request) -> Answer:
    """Park until the records are committed."""
    return carry_out(
        services,
        request,
        _operation,
        response=WriteShareGroupStateResponse,
        topic_result=WriteStateResult,
        partition_result=_result,
    )


def _operation(key: SharePartitionKey, partition: Any, reply: Completion[ErrorCode]) -> Write:
    write = StateWrite(
        partition.state_epoch,
        partition.leader_epoch,
        partition.start_offset,
        batches_of(partition.state_batches),
        partition.delivery_complete_count,
    )
    return Write(key, reply, write)


def _result(partition: int, error: ErrorCode) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error, error_message=text_of(error))


API = Api(85, "WriteShareGroupState", (0, 1), handle, nodes_only=nodes_only)
