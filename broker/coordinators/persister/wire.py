"""Operations on share state as requests to a share coordinator, and its responses as answers.

A request has operations of one kind and one group, as the five APIs want it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateRead, StateSummary, batches_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k83_initialize_share_group_state as initialize
from barnabas.protocol.messages import k84_read_share_group_state as read
from barnabas.protocol.messages import k85_write_share_group_state as write
from barnabas.protocol.messages import k86_delete_share_group_state as delete
from barnabas.protocol.messages import k87_read_share_group_state_summary as summary
from barnabas.protocol.schema import Message

PARTITIONS_MAX: Final = 1000  # of a request
BATCHES_MAX: Final = 100_000  # of a request with several partitions; about 2 MB


class Kind(NamedTuple):
    """How one kind of operation is sent."""

    version: int
    request: Callable[..., Message]
    topic: Callable[..., Any]
    partition: Callable[[Any], Any]  # what a request says of a partition
    answer: Callable[[Any], Any]  # what a response says of a partition, as the answer of the operation


def _initialize(operation: op.Initialize) -> initialize.PartitionData:
    return initialize.PartitionData(
        partition=operation.key.partition, state_epoch=operation.state_epoch, start_offset=operation.start_offset
    )


def _write(operation: op.Write) -> write.PartitionData:
    change = operation.write
    return write.PartitionData(
        partition=operation.key.partition,
        state_epoch=change.state_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=[
            write.StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.delivery_state,
                delivery_count=batch.delivery_count,
            )
            for batch in change.batches
        ],
    )


def _read(operation: op.Read) -> read.PartitionData:
    return read.PartitionData(partition=operation.key.partition, leader_epoch=operation.leader_epoch)


def _read_summary(operation: op.ReadSummary) -> summary.PartitionData:
    return summary.PartitionData(partition=operation.key.partition, leader_epoch=operation.leader_epoch)


def _delete(operation: op.Delete) -> delete.PartitionData:
    return delete.PartitionData(partition=operation.key.partition)


def _error(result: Any) -> ErrorCode:
    return ErrorCode.of(result.error_code)


def _state_read(result: read.PartitionResult) -> StateRead:
    return StateRead(
        ErrorCode.of(result.error_code), result.state_epoch, result.start_offset, batches_of(result.state_batches)
    )


def _state_summary(result: summary.PartitionResult) -> StateSummary:
    return StateSummary(
        ErrorCode.of(result.error_code),
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        result.delivery_complete_count,
    )


KINDS: Final[dict[type[op.Operation], Kind]] = {
    op.Initialize: Kind(
        0, initialize.InitializeShareGroupStateRequest, initialize.InitializeStateData, _initialize, _error
    ),
    op.Read: Kind(0, read.ReadShareGroupStateRequest, read.ReadStateData, _read, _state_read),
    op.Write: Kind(1, write.WriteShareGroupStateRequest, write.WriteStateData, _write, _error),
    op.Delete: Kind(0, delete.DeleteShareGroupStateRequest, delete.DeleteStateData, _delete, _error),
    op.ReadSummary: Kind(
        1, summary.ReadShareGroupStateSummaryRequest, summary.ReadStateSummaryData, _read_summary, _state_summary
    ),
}


def together(operations: Iterable[op.Operation]) -> Iterator[list[op.Operation]]:
    """Divide operations into those that go into one request."""
    groups: dict[tuple[type[op.Operation], str], list[op.Operation]] = {}
    for operation in operations:
        groups.setdefault((type(operation), operation.key.group_id), []).append(operation)
    for members in groups.values():
        part: list[op.Operation] = []
        batches = 0
        for operation in members:
            count = len(operation.write.batches) if isinstance(operation, op.Write) else 0
            if part and (len(part) == PARTITIONS_MAX or batches + count > BATCHES_MAX):
                yield part
                part, batches = [], 0
            part.append(operation)
            batches += count
        yield part


def request_of(operations: Sequence[op.Operation]) -> tuple[Message, int]:
    """Return the request that carries operations of one kind and group, and its version."""
    kind = KINDS[type(operations[0])]
    topics: dict[bytes, list[Any]] = {}
    for operation in operations:
        topics.setdefault(operation.key.topic_id, []).append(kind.partition(operation))
    message = kind.request(
        group_id=operations[0].key.group_id,
        topics=[kind.topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
    )
    return message, kind.version


def answers_of(operations: Sequence[op.Operation], response: Any) -> dict[SharePartitionKey, Any]:
    """Return what a response answers to each of its request's operations; it may miss some, or name others."""
    first = operations[0]
    answer, group_id = KINDS[type(first)].answer, first.key.group_id
    return {
        SharePartitionKey(group_id, topic.topic_id, result.partition): answer(result)
        for topic in response.results
        for result in topic.partitions
    }
