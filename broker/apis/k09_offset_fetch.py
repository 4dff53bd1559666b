"""OffsetFetch: v1-v10

Behaviour: returns the committed offsets of a group's partitions, or of all partitions that have one. A partition
without an offset gets -1.

Version notes: v2 null topics mean all, and the group's error is the response's; v3 throttle time; v5 leader epoch
(KIP-320); v6 flexible; v7 require_stable (KIP-447); v8 many groups; v9 member id and epoch (of KIP-848 groups); v10
topics by id.

Errors of a group (in v1 on each of its partitions): NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS (also until
everything that a new coordinator has read is committed); for members of consumer groups (v9) UNKNOWN_MEMBER_ID,
STALE_MEMBER_EPOCH, ILLEGAL_GENERATION. Errors of a partition: UNKNOWN_TOPIC_ID (v10), UNSTABLE_OFFSET_COMMIT (an open
transaction has an offset for it; only with require_stable). A group that does not exist has no offsets; that is not an
error.

Different from Apache Kafka: one request gets all offsets of the same group at most ten times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.groups.group_offsets import FetchedOffsets, OffsetQuery
from barnabas.broker.coordinators.offsets.store import FetchedPartition, FetchedTopic, TopicQuery
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.requests.parking import Park
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
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
    from barnabas.broker.requests.request import Request

GROUP_ERROR_FROM = 2
MANY_GROUPS_FROM = 8
TOPIC_IDS_FROM = 10
REPEATS_MAX = 10  # answers with all offsets of one group in a request


class GroupAnswer:
    """One group's query, and its error and topics once the coordinator has answered."""

    __slots__ = ("error", "query", "refused", "topics")

    def __init__(self, query: OffsetQuery) -> None:
        self.query = query
        self.error = ErrorCode.NONE
        self.refused: frozenset[str] = frozenset()  # topics that the client may not describe
        self.topics: Sequence[FetchedTopic] = ()


def handle(services: Services, request: Request) -> Park:
    """Park until every group's coordinator has answered."""
    message: OffsetFetchRequest = request.message
    version = request.version
    snapshot = services.metadata_cache.snapshot
    groups = [GroupAnswer(query) for query in _queries(message, snapshot, version)]
    if request.access is not None:
        for group in groups:
            _refuse(group, request.access)
    deferred = Deferred()

    def finish(results: dict[int, FetchedOffsets]) -> None:
        for index, group in enumerate(groups):
            group.error = results[index].error
            if not group.error:
                topics = _visible(group, results[index].topics, request.access)
                group.topics = _complete(group.query.topics, topics, snapshot, version)
        deferred.complete(response(groups, version))

    gathering: Gathering[int, FetchedOffsets] = Gathering(len(groups), finish)
    for index, group in enumerate(groups):
        if group.error:
            gathering.add(index, FetchedOffsets(group.error))
            continue
        query = group.query
        if query.topics is not None:
            wanted = [topic for topic in query.topics if topic.name and topic.name not in group.refused]
            query = query._replace(topics=wanted)
        services.group_coordinator.fetch_offsets(query, partial(gathering.add, index))
    return Park(deferred)


def _queries(message: OffsetFetchRequest, snapshot: MetadataSnapshot, version: int) -> list[OffsetQuery]:
    is_stable = message.require_stable
    if version < MANY_GROUPS_FROM:
        topics = message.topics
        queries = None if topics is None else [TopicQuery(ZERO_UUID, t.name, t.partition_indexes) for t in topics]
        return [OffsetQuery(message.group_id, queries, is_stable)]
    # Why bounded: a request of few bytes can ask for everything that a group has.
    whole = Counter[str]()
    groups = []
    for group in message.groups:
        whole[group.group_id] += group.topics is None
        if group.topics is not None or whole[group.group_id] <= REPEATS_MAX:
            groups.append(group)
    return [
        OffsetQuery(
            group.group_id, _topic_queries(group.topics, snapshot, version), is_stable, group.member_id,
            group.member_epoch,
        )
        for group in groups
    ]  # fmt: skip


def _topic_queries(
    topics: Sequence[OffsetFetchRequestTopics] | None, snapshot: MetadataSnapshot, version: int
) -> list[TopicQuery] | None:
    """Return the topics with their names; the name for an unknown id is ""."""
    if topics is None:
        return None
    if version < TOPIC_IDS_FROM:
        return [TopicQuery(ZERO_UUID, t.name, t.partition_indexes) for t in topics]
    return [TopicQuery(t.topic_id, snapshot.topic_name(t.topic_id) or "", t.partition_indexes) for t in topics]


def _refuse(group: GroupAnswer, access: Access) -> None:
    """Note what the client may not ask for."""
    query = group.query
    if not access.allows(rights.OFFSET_FETCH_GROUP, query.group_id):
        group.error = rights.OFFSET_FETCH_GROUP.error
    elif query.topics is not None:
        names = [topic.name for topic in query.topics if topic.name]
        group.refused = frozenset(names) - access.allowed(rights.OFFSET_FETCH_TOPIC, names)


def _visible(group: GroupAnswer, topics: Sequence[FetchedTopic], access: Access | None) -> Sequence[FetchedTopic]:
    """Leave out, of all topics, those that the client may not describe; refuse those that it named."""
    if access is None:
        return topics
    if group.query.topics is None:
        allowed = access.allowed(rights.OFFSET_FETCH_ALL_TOPICS, [topic.name for topic in topics])
        return [topic for topic in topics if topic.name in allowed]
    error = rights.OFFSET_FETCH_TOPIC.error
    refused = [
        FetchedTopic(topic.topic_id, topic.name, [FetchedPartition(p, error=error) for p in topic.partitions])
        for topic in group.query.topics
        if topic.name in group.refused
    ]
    return [*topics, *refused]


def _complete(
    queries: Sequence[TopicQuery] | None, topics: Sequence[FetchedTopic], snapshot: MetadataSnapshot, version: int
) -> Sequence[FetchedTopic]:
    """Add an error for unknown topic ids; for a query of all topics, add ids and drop topics without one."""
    if version < TOPIC_IDS_FROM:
        return topics
    if queries is None:
        identified = (topic._replace(topic_id=snapshot.topic_id(topic.name)) for topic in topics)
        return [topic for topic in identified if topic.topic_id != ZERO_UUID]
    unknown = [
        FetchedTopic(
            topic.topic_id, "", [FetchedPartition(p, error=ErrorCode.UNKNOWN_TOPIC_ID) for p in topic.partitions]
        )
        for topic in queries
        if not topic.name
    ]
    return [*topics, *unknown]


def response(groups: list[GroupAnswer], version: int) -> OffsetFetchResponse:
    """Build the response of this version."""
    if version >= MANY_GROUPS_FROM:
        return OffsetFetchResponse(groups=[_group(group, version) for group in groups])
    group = groups[0]
    topics = group.topics
    if group.error and version < GROUP_ERROR_FROM:
        topics = [
            FetchedTopic(ZERO_UUID, t.name, [FetchedPartition(p, error=group.error) for p in t.partitions])
            for t in group.query.topics or ()
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
        group_id=group.query.group_id,
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


API = Api(9, "OffsetFetch", (1, 10), handle)
