"""TxnOffsetCommit: v0-v5

Behaviour: commits a group's offsets as part of a producer's transaction; they take effect when it is committed. Before
the first offsets of a transaction, its coordinator verifies that the partition of __consumer_offsets is part of it;
since v5 it adds the partition (KIP-890). Members of the group may send their generation, and are fenced by it
(KIP-447).

Version notes: v1 throttle time; v2 leader epoch; v3 flexible, member and generation (KIP-447); v4 adds
TRANSACTION_ABORTABLE; v5 the broker adds the partition.

Errors (each on the partitions): UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE; on all of them NOT_COORDINATOR,
COORDINATOR_LOAD_IN_PROGRESS (COORDINATOR_NOT_AVAILABLE before v2), COORDINATOR_NOT_AVAILABLE, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INVALID_GROUP_ID, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING,
INVALID_TXN_STATE, TRANSACTION_ABORTABLE (v4), CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.apis.verified import HIDDEN, NOTHING_TO_VERIFY, Verdict, draw_guards, verify
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.groups.group_offsets import Committer, OffsetCommit
from barnabas.broker.coordinators.offsets.store import CommittedOffset
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.coordinators.transactions.verification import Operation
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer, Park
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
    from barnabas.broker.requests.request import Request

LOADING_FROM: Final = 2
ABORTABLE_FROM: Final = 4
ADDS_FROM: Final = 5
NO_SEQUENCE: Final = -1


def handle(services: Services, request: Request) -> Answer:
    """Park until the offsets are written."""
    message: TxnOffsetCommitRequest = request.message
    response, rows, commits = _gather(services, request, message)
    if not rows:
        return Reply(response)
    tp = TopicPartition(GROUP_METADATA_TOPIC, services.group_coordinator.partition_for(message.group_id))
    producer = Producer(message.producer_id, message.producer_epoch)
    operation = _operation(request.version)

    def finish(error: ErrorCode) -> TxnOffsetCommitResponse:
        for row in rows if error else ():
            row.error_code = _error_for(error, request.version)
        return response

    def commit(verdict: Verdict) -> Answer:
        if tp in verdict.errors:
            return Reply(finish(_coordinator_error(verdict.errors[tp])))
        deferred = Deferred()
        committer = Committer(
            message.group_id, message.member_id, message.group_instance_id, message.generation_id, request.version
        )
        services.group_coordinator.commit_in_transaction(
            committer, producer, commits, verdict.guards.get(tp), lambda error: deferred.complete(finish(error))
        )
        return Park(deferred)

    if not message.group_id:
        return Reply(finish(ErrorCode.INVALID_GROUP_ID))
    draw = partial(draw_guards, services, {tp: (producer, NO_SEQUENCE)}, operation)
    guards = draw()
    if not guards:
        return commit(NOTHING_TO_VERIFY)
    return verify(services, message.transactional_id, producer, guards, draw, operation, commit)


def _operation(version: int) -> Operation:
    if version >= ADDS_FROM:
        return Operation.ADD
    return Operation.VERIFY if version >= ABORTABLE_FROM else Operation.VERIFY_OLD


def _gather(
    services: Services, request: Request, message: TxnOffsetCommitRequest
) -> tuple[TxnOffsetCommitResponse, list[TxnOffsetCommitResponsePartition], list[OffsetCommit]]:
    """Return (the unfinished response, its rows that get the coordinator's error, the offsets to commit)."""
    snapshot, coordinator = services.metadata_cache.snapshot, services.group_coordinator
    now_ms = coordinator.now_ms
    response = TxnOffsetCommitResponse(topics=[])
    open_rows: list[TxnOffsetCommitResponsePartition] = []
    commits: list[OffsetCommit] = []
    access = request.access
    for topic in message.topics:
        answer = TxnOffsetCommitResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answer)
        is_allowed = access is None or access.allows(rights.TXN_OFFSET_COMMIT_TOPIC, topic.name)
        for partition in topic.partitions:
            row = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=0)
            answer.partitions.append(row)
            metadata = partition.committed_metadata or ""
            if not is_allowed:
                row.error_code = rights.TXN_OFFSET_COMMIT_TOPIC.error
                continue
            if snapshot.partition(TopicPartition(topic.name, partition.partition_index)) is None:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            open_rows.append(row)
            if len(metadata) > coordinator.offset_metadata_max_chars:
                row.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            committed = CommittedOffset(
                partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms,
                topic_id=snapshot.topic_id(topic.name),
            )  # fmt: skip
            commits.append(OffsetCommit(topic.name, partition.partition_index, committed))
    return response, open_rows, commits


def _coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return an error of the transaction's coordinator, as the group coordinator would report it."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error in HIDDEN else error


def _error_for(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error as a client of this version knows it."""
    is_old = version < LOADING_FROM and error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if is_old else error


API = Api(28, "TxnOffsetCommit", (0, 5), handle)
