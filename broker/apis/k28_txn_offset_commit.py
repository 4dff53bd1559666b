"""TxnOffsetCommit: v0-v5

Behaviour: commits a group's positions as part of a producer's transaction: they count when it is committed. Before the
first ones of a transaction its coordinator is asked whether it knows of them; from v5 on the partition of
__consumer_offsets is added to the transaction there and then (KIP-890). Members of the group may name their generation,
and are fenced by it (KIP-447).

Version notes: v1 throttle time; v2 leader epoch; v3 flexible, member and generation (KIP-447); v4
TRANSACTION_ABORTABLE is known; v5 the broker adds the partition.

Errors (each on the partitions): UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE; on all of them NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS (COORDINATOR_NOT_AVAILABLE before v2), COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INVALID_GROUP_ID, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING,
INVALID_TXN_STATE, TRANSACTION_ABORTABLE (v4), CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.answers import Answer, Park, Reply
from barnabas.broker.apis.api import Api
from barnabas.broker.apis.verified import HIDDEN, NOTHING_TO_VERIFY, Verdict, draw_guards, verify
from barnabas.broker.coordinators.offsets import CommittedOffset
from barnabas.broker.coordinators.shard import Committer, OffsetCommit
from barnabas.broker.coordinators.transaction import Producer
from barnabas.broker.coordinators.transaction_verification import Operation
from barnabas.broker.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.broker.purgatory import Deferred
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request

LOADING_FROM: Final = 2
ABORTABLE_FROM: Final = 4
ADDS_FROM: Final = 5
NO_SEQUENCE: Final = -1


def handle(services: Services, request: Request) -> Answer:
    """Park until the positions are in the log."""
    message: TxnOffsetCommitRequest = request.message
    response, rows, commits = _gather(services, message)
    if not rows:
        return Reply(response)
    tp = TopicPartition(GROUP_METADATA_TOPIC, services.group_coordinator.partition_for(message.group_id))
    producer = Producer(message.producer_id, message.producer_epoch)
    operation = _operation(request.version)

    def finish(error: ErrorCode) -> TxnOffsetCommitResponse:
        for row in rows if error else ():
            row.error_code = _told(error, request.version)
        return response

    def commit(verdict: Verdict) -> Answer:
        if tp in verdict.errors:
            return Reply(finish(_coordinator_error(verdict.errors[tp])))
        deferred = Deferred()
        who = Committer(
            message.group_id, message.member_id, message.group_instance_id, message.generation_id, request.version
        )
        services.group_coordinator.commit_in_transaction(
            who, producer, commits, verdict.guards.get(tp), lambda error: deferred.complete(finish(error))
        )
        return Park(deferred)

    if not message.group_id:
        return Reply(finish(ErrorCode.INVALID_GROUP_ID))
    draw = partial(draw_guards, services, {tp: (producer, NO_SEQUENCE)}, operation)
    guards = draw()
    if not guards:
        return commit(NOTHING_TO_VERIFY)
    return verify(services, request, message.transactional_id, producer, guards, draw, operation, partial(commit))


def _operation(version: int) -> Operation:
    if version >= ADDS_FROM:
        return Operation.ADD
    return Operation.VERIFY if version >= ABORTABLE_FROM else Operation.VERIFY_OLD


def _gather(
    services: Services, message: TxnOffsetCommitRequest
) -> tuple[TxnOffsetCommitResponse, list[TxnOffsetCommitResponsePartition], list[OffsetCommit]]:
    """(the answer as far as it is known, its rows that the coordinator settles, what is to be stored)."""
    snapshot, coordinator = services.metadata_cache.snapshot, services.group_coordinator
    now_ms = coordinator.now_ms
    response = TxnOffsetCommitResponse(topics=[])
    settled: list[TxnOffsetCommitResponsePartition] = []
    commits: list[OffsetCommit] = []
    for topic in message.topics:
        answer = TxnOffsetCommitResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answer)
        for asked in topic.partitions:
            row = TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=0)
            answer.partitions.append(row)
            metadata = asked.committed_metadata or ""
            if snapshot.partition(TopicPartition(topic.name, asked.partition_index)) is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            settled.append(row)
            if len(metadata) > coordinator.offset_metadata_max_chars:
                row.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            committed = CommittedOffset(
                asked.committed_offset, asked.committed_leader_epoch, metadata, now_ms,
                topic_id=snapshot.topic_id(topic.name),
            )  # fmt: skip
            commits.append(OffsetCommit(topic.name, asked.partition_index, committed))
    return response, settled, commits


def _coordinator_error(error: ErrorCode) -> ErrorCode:
    """Say what the transaction's coordinator answered in words that clients know from the group's."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error in HIDDEN else error


def _told(error: ErrorCode, version: int) -> ErrorCode:
    is_old = version < LOADING_FROM and error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_old else error


API = Api(28, "TxnOffsetCommit", (0, 5), handle, operation="WRITE", resource="TRANSACTIONAL_ID")
