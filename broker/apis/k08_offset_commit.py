"""OffsetCommit: v2-v10

Behaviour: stores a group's offsets, and answers when they are committed to __consumer_offsets. Members send their
generation. Other clients (administrators, consumers with manual assignment) send generation -1, and may commit while
the group has no members. A commit renews a member's session.

Version notes: v2-v4 have a retention time; v3 throttle time; v6 leader epoch (KIP-320); v7 group.instance.id (KIP-345);
v8 flexible; v9 GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION for a group that does not exist; v10 topics by id
(KIP-848).

Errors (each on the partitions): UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID (v10), OFFSET_METADATA_TOO_LARGE; on
all of them NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (not replicated in time),
UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND (v9),
STALE_MEMBER_EPOCH (v9, consumer groups: the epoch is not the member's, or older than the partition's assignment,
KIP-1251), UNSUPPORTED_VERSION (a member of a consumer group, before v9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.groups.group_offsets import Committer, OffsetCommit
from barnabas.broker.coordinators.offsets.store import NO_TIMESTAMP, CommittedOffset
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
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
    from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
    from barnabas.broker.requests.request import Request

TOPIC_IDS_FROM = 10
NO_RETENTION = -1


class _Draft:
    """An unfinished response, and the offsets to commit."""

    __slots__ = ("_open_rows", "commits", "response")

    def __init__(self) -> None:
        self.response = OffsetCommitResponse()
        self.commits: list[OffsetCommit] = []
        self._open_rows: list[OffsetCommitResponsePartition] = []  # a group's error overrides theirs

    def finish(self, error: ErrorCode) -> OffsetCommitResponse:
        """Complete the response with the coordinator's error."""
        if error:
            for partition in self._open_rows:
                partition.error_code = error
        return self.response

    def add(self, row: OffsetCommitResponsePartition, commit: OffsetCommit | None) -> None:
        """Add an existing partition, and its offset if it is valid."""
        self._open_rows.append(row)
        if commit is not None:
            self.commits.append(commit)

    @property
    def needs_coordinator(self) -> bool:
        """Whether any partition exists."""
        return bool(self._open_rows)


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the offsets are committed."""
    message: OffsetCommitRequest = request.message
    draft = _draft(services, request, message)
    if not draft.needs_coordinator:
        return Reply(draft.response)
    deferred = Deferred()
    committer = Committer(
        message.group_id, message.member_id, message.group_instance_id, message.generation_id_or_member_epoch,
        request.version,
    )  # fmt: skip
    services.group_coordinator.commit_offsets(
        committer, draft.commits, lambda error: deferred.complete(draft.finish(error))
    )
    return Park(deferred)


def _draft(services: Services, request: Request, message: OffsetCommitRequest) -> _Draft:
    version, access = request.version, request.access
    coordinator = services.group_coordinator
    snapshot = services.metadata_cache.snapshot
    now_ms = coordinator.now_ms
    expire_ms = NO_TIMESTAMP if message.retention_time_ms == NO_RETENTION else now_ms + message.retention_time_ms
    draft = _Draft()
    for topic in message.topics:
        name, topic_id = _identify(snapshot, topic, version)
        answer = OffsetCommitResponseTopic(partitions=[])
        if version >= TOPIC_IDS_FROM:
            answer.topic_id = topic.topic_id
        else:
            answer.name = topic.name
        draft.response.topics.append(answer)
        is_allowed = access is None or not name or access.allows(rights.OFFSET_COMMIT_TOPIC, name)
        for partition in topic.partitions:
            if is_allowed:
                error = _partition_error(snapshot, name, partition, coordinator.offset_metadata_max_chars, version)
            else:
                error = rights.OFFSET_COMMIT_TOPIC.error
            row = OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            answer.partitions.append(row)
            if error == ErrorCode.OFFSET_METADATA_TOO_LARGE:
                draft.add(row, None)
            elif not error:
                committed = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, partition.committed_metadata or "",
                    now_ms, expire_ms, topic_id,
                )  # fmt: skip
                draft.add(row, OffsetCommit(name, partition.partition_index, committed))
    return draft


def _identify(snapshot: MetadataSnapshot, topic: OffsetCommitRequestTopic, version: int) -> tuple[str, bytes]:
    """Return the topic's name and id; an unknown name is "", an unknown id ZERO_UUID."""
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


API = Api(8, "OffsetCommit", (2, 10), handle)
