"""DeleteShareGroupState: v0

Behaviour: removes the state of share partitions, for the group coordinator (KIP-932). State that does not exist is no
error. Only brokers send it.

Errors (each on a partition): NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.share_state import carry_out, text_of
from barnabas.broker.coordinators.share_state.operations import Delete
from barnabas.broker.requests.api import Api, nodes_only
from barnabas.protocol.messages.k86_delete_share_group_state import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
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
    """Park until the removals are committed."""
    return carry_out(
        services,
        request,
        _operation,
        response=DeleteShareGroupStateResponse,
        topic_result=DeleteStateResult,
        partition_result=_result,
    )


def _operation(key: SharePartitionKey, _partition: Any, reply: Completion[ErrorCode]) -> Delete:
    return Delete(key, reply)


def _result(partition: int, error: ErrorCode) -> PartitionResult:
    return PartitionResult(partition=partition, error_code=error, error_message=text_of(error))


API = Api(86, "DeleteShareGroupState", (0, 0), handle, nodes_only=nodes_only)
