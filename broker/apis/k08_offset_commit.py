"""OffsetCommit: v2-v10

Behaviour: stores positions for a group, and answers when they are committed to __consumer_offsets. Members name
their generation; others (administrators, consumers that manage partitions themselves) give generation -1, and may
commit while the group has no members. A commit keeps a member's session alive.

Version notes: v2-v4 may say how long to keep the positions; v3 throttle time; v6 leader epoch (KIP-320); v7
group.instance.id (KIP-345); v8 flexible; v9 GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION for a group that does not
exist; v10 topics by id (KIP-848).

Errors (each on the partitions): UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (v10), OFFSET_METADATA_TOO_LARGE; on
all of them NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (not replicated in time),
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND (v9),
STALE_MEMBER_EPOCH (v9, of a consumer group: the epoch is not the member's, or is from before the partition was
assigned to it, KIP-1251), UNSUPPORTED_VERSION (a member of a consumer group, before v9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Park, Reply
from barnabas.broker.apis.api import Api
from barnabas.broker.coordinators.offsets import NO_TIMESTAMP, CommittedOffset
from barnabas.broker.coordinators.shard import Committer, OffsetCommit
from barnabas.broker.purgatory import Deferred
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.metadata_cache import MetadataSnapshot
    from barnabas.broker.request_channel import Request

TOPIC_IDS_FROM = 10
NO_RETENTION = -1


class Gathered:
    """The answer as far as it is known, and what the coordinator is asked to store."""

    __slots__ = ("_settled_by_group", "commits", "response")

    def __init__(self) -> None:
        self.response = OffsetCommitResponse()
        self.commits: list[OffsetCommit] = []
        self._settled_by_group: list[OffsetCommitResponsePartition] = []  # an error of the group overrides theirs

    def finish(self, error: ErrorCode) -> OffsetCommitResponse:
        """Complete the answer with what the coordinator said."""
        if error:
            for partition in self._settled_by_group:
                partition.error_code = error
        return self.response

    def ask(self, partition: OffsetCommitResponsePartition, commit: OffsetCommit | None) -> None:
        """Add a partition that exists, and the position to be stored unless that cannot be."""
        self._settled_by_group.append(partition)
        if commit is not None:
            self.commits.append(commit)

    @property
    def needs_coordinator(self) -> bool:
        """Whether any of the partitions exists."""
        return bool(self._settled_by_group)


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the positions are committed."""
    message: OffsetCommitRequest = request.message
    gathered = _gather(services, message, request.version)
    if not gathered.needs_coordinator:
        return Reply(gathered.response)
    deferred = Deferred()
    who = Committer(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id_or_member_epoch,
        request.version,
    )  # fmt: skip
    services.group_coordinator.commit_offsets(
        who, gathered.commits, lambda error: deferred.complete(gathered.finish(error))
    )
    return Park(deferred)


def _gather(services: Services, message: OffsetCommitRequest, version: int) -> Gathered:
    coordinator = services.group_coordinator
    snapshot = services.metadata_cache.snapshot
    now_ms = coordinator.now_ms
    expire_ms = NO_TIMESTAMP if message.retention_time_ms == NO_RETENTION else now_ms + message.retention_time_ms
    gathered = Gathered()
    for topic in message.topics:
        name, topic_id = _identify(snapshot, topic, version)
        answer = OffsetCommitResponseTopic(partitions=[])
        if version >= TOPIC_IDS_FROM:
            answer.topic_id = topic.topic_id
        else:
            answer.name = topic.name
        gathered.response.topics.append(answer)
        for partition in topic.partitions:
            error = _partition_error(snapshot, name, partition, coordinator.offset_metadata_max_chars, version)
            row = OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            answer.partitions.append(row)
            if error == ErrorCode.OFFSET_METADATA_TOO_LARGE:
                gathered.ask(row, None)
            elif not error:
                committed = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or "",
                    now_ms, expire_ms, topic_id,
                )  # fmt: skip
                gathered.ask(row, OffsetCommit(name, partition.partition_index, committed))
    return gathered


def _identify(snapshot: MetadataSnapshot, topic: OffsetCommitRequestTopic, version: int) -> tuple[str, bytes]:
    """The topic's name and id; the name is "" or the id ZERO_UUID when it is unknown."""
    if version >= TOPIC_IDS_FROM:
        return snapshot.topic_name(topic.topic_id) or "", topic.topic_id
    return topic.name, snapshot.topic_id(topic.name)


def _partition_error(
    snapshot: MetadataSnapshot,
    name: str,
    partition: OffsetCommitRequestPartition,
    metadata_max_chars: int,
    version: int,
) -> ErrorCode:
    if not name and version >= TOPIC_IDS_FROM:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if snapshot.partition(TopicPartition(name, partition.partition_index)) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(partition.committed_metadata or "") > metadata_max_chars:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


API = Api(8, "OffsetCommit", (2, 10), handle, operation="READ", resource="GROUP")
