"""OffsetFetch: v1-v10

Behaviour: tells the committed positions of a group's partitions, or of all that have one. What has none is -1.

Version notes: v2 null topics ask for all, and the group's error is the answer's; v3 throttle time; v5 leader epoch
(KIP-320); v6 flexible; v7 require_stable (KIP-447); v8 many groups; v9 member id and epoch (of KIP-848 groups); v10
topics by id.

Errors: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS (until all that a new coordinator has read is committed, too), and
for members of consumer groups (v9) UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, for a group (in v1 on
each of its partitions); UNKNOWN_TOPIC_ID (v10) and UNSTABLE_OFFSET_COMMIT (an open transaction will change it, only
with require_stable) for a partition. A group that does not exist has no positions; that is not an error.

Different from Apache Kafka: a group that is asked for all its positions again and again is answered ten times.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.answers import Park
from barnabas.broker.apis.api import Api
from barnabas.broker.coordinators.offsets import FetchedPartition, FetchedTopic, TopicWanted
from barnabas.broker.purgatory import Deferred
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.metadata_cache import MetadataSnapshot
    from barnabas.broker.request_channel import Request

GROUP_ERROR_FROM = 2
MANY_GROUPS_FROM = 8
TOPIC_IDS_FROM = 10
REPEATS_MAX = 10  # of one group's whole positions in a request


class GroupAnswer:
    """One group's part: its id, error and topics, filled in when the coordinator has answered."""

    __slots__ = ("error", "group_id", "member_epoch", "member_id", "topics", "wanted")

    def __init__(
        self, group_id: str, wanted: list[TopicWanted] | None, member_id: str | None = None, member_epoch: int = -1
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id  # of a consumer group; None: does not say that it is one
        self.member_epoch = member_epoch
        self.wanted = wanted  # None: all
        self.error = ErrorCode.NONE
        self.topics: list[FetchedTopic] = []


def handle(services: Services, request: Request) -> Park:
    """Park until every group's coordinator has answered."""
    message: OffsetFetchRequest = request.message
    version = request.version
    snapshot = services.metadata_cache.snapshot
    groups = _groups(message, snapshot, version)
    deferred = Deferred()
    lock = threading.Lock()  # guards `waiting`: groups may be answered on different threads
    waiting = len(groups)

    def answered(group: GroupAnswer, error: ErrorCode, topics: list[FetchedTopic]) -> None:
        nonlocal waiting
        with lock:
            group.error = error
            group.topics = [] if error else _complete(group.wanted, topics, snapshot, version)
            waiting -= 1
            is_last = waiting == 0
        if is_last:
            deferred.complete(response(groups, version))

    if not groups:
        deferred.complete(response(groups, version))
    for group in groups:
        known = None if group.wanted is None else [topic for topic in group.wanted if topic.name]
        services.group_coordinator.fetch_offsets(
            group.group_id, known, message.require_stable, partial(answered, group), member_id=group.member_id,
            member_epoch=group.member_epoch,
        )  # fmt: skip
    return Park(deferred)


def _groups(message: OffsetFetchRequest, snapshot: MetadataSnapshot, version: int) -> list[GroupAnswer]:
    if version < MANY_GROUPS_FROM:
        topics = message.topics
        wanted = None if topics is None else [TopicWanted(ZERO_UUID, t.name, t.partition_indexes) for t in topics]
        return [GroupAnswer(message.group_id, wanted)]
    # Why bounded: few bytes ask for everything that a group has.
    whole = Counter[str]()
    asked = []
    for group in message.groups:
        whole[group.group_id] += group.topics is None
        if group.topics is not None or whole[group.group_id] <= REPEATS_MAX:
            asked.append(group)
    return [
        GroupAnswer(group.group_id, _wanted(group.topics, snapshot, version), group.member_id, group.member_epoch)
        for group in asked
    ]


def _wanted(
    topics: Sequence[OffsetFetchRequestTopics] | None, snapshot: MetadataSnapshot, version: int
) -> list[TopicWanted] | None:
    """The topics by name; one whose id is unknown has the name ""."""
    if topics is None:
        return None
    if version < TOPIC_IDS_FROM:
        return [TopicWanted(ZERO_UUID, t.name, t.partition_indexes) for t in topics]
    return [TopicWanted(t.topic_id, snapshot.topic_name(t.topic_id) or "", t.partition_indexes) for t in topics]


def _complete(
    wanted: list[TopicWanted] | None, topics: list[FetchedTopic], snapshot: MetadataSnapshot, version: int
) -> list[FetchedTopic]:
    """Add the topics that nobody knows; give ids to those that are told by id, leaving out what has none."""
    if version < TOPIC_IDS_FROM:
        return topics
    if wanted is None:
        identified = (topic._replace(topic_id=snapshot.topic_id(topic.name)) for topic in topics)
        return [topic for topic in identified if topic.topic_id != ZERO_UUID]
    unknown = [
        FetchedTopic(
            topic.topic_id, "", [FetchedPartition(p, error=ErrorCode.UNKNOWN_TOPIC_ID) for p in topic.partitions]
        )
        for topic in wanted
        if not topic.name
    ]
    return topics + unknown


def response(groups: list[GroupAnswer], version: int) -> OffsetFetchResponse:
    """Build the answer as this version says it."""
    if version >= MANY_GROUPS_FROM:
        return OffsetFetchResponse(groups=[_group(group, version) for group in groups])
    group = groups[0]
    topics = group.topics
    if group.error and version < GROUP_ERROR_FROM:
        topics = [
            FetchedTopic(ZERO_UUID, t.name, [FetchedPartition(p, error=group.error) for p in t.partitions])
            for t in group.wanted or ()
        ]
    message = OffsetFetchResponse(topics=[_old_topic(topic) for topic in topics])
    if version >= GROUP_ERROR_FROM:
        message.error_code = group.error
    return message


def _old_topic(topic: FetchedTopic) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=p.partition, committed_offset=p.offset, committed_leader_epoch=p.leader_epoch,
                metadata=p.metadata, error_code=p.error,
            )
            for p in topic.partitions
        ],
    )  # fmt: skip


def _group(group: GroupAnswer, version: int) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=group.error,
        topics=[_topic(topic, version) for topic in group.topics],
    )


def _topic(topic: FetchedTopic, version: int) -> OffsetFetchResponseTopics:
    message = OffsetFetchResponseTopics(
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=p.partition, committed_offset=p.offset, committed_leader_epoch=p.leader_epoch,
                metadata=p.metadata, error_code=p.error,
            )
            for p in topic.partitions
        ]
    )  # fmt: skip
    if version >= TOPIC_IDS_FROM:
        message.topic_id = topic.topic_id
    else:
        message.name = topic.name
    return message


API = Api(9, "OffsetFetch", (1, 10), handle, operation="DESCRIBE", resource="GROUP")
