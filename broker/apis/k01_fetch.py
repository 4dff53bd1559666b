"""Fetch: v4-v18

Behaviour
- The request, completed by its session, becomes a list of partitions. Each is read up to the offset that its isolation
  allows (followers: LEO; read_uncommitted: HW; read_committed: LSO), as slices of files that are never copied.
- What was revoked while a request waited is not in its response.
- The response is sent at once when min_bytes are there, when max_wait_ms is 0, or when reading a partition meets an
  error, a diverging epoch or a preferred replica. Otherwise the request is parked (`DelayedFetch`): a consumer that
  also names a topic that it may not read, or that is unknown, waits, or it would ask again and again.
- A consumer whose quota is exceeded gets an empty response that leaves its session as it was, and waits.
- A follower's fetch is noted before its partition is read: it shows how far the follower's log reaches. The leader
  then moves the high watermark, and may propose the follower for the ISR.

Version notes
- v5: log_start_offset. v7 (KIP-227): sessions. v9 (KIP-320): current_leader_epoch. v11 (KIP-392): preferred replica.
  v12 (KIP-595): last_fetched_epoch, diverging_epoch. v13 (KIP-516): topic ids. v15 (KIP-903): replica_state.
  v16 (KIP-951): current leader, node endpoints. v17 (KIP-853), v18 (KIP-1166): for KRaft's own log only.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR; of the whole request:
FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.

Different from Apache Kafka: nothing is stored in old formats, so nothing is ever converted down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.apis.redirect import current_leader
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.fetch_sessions.sessions import FetchContext, item_of
from barnabas.broker.replication.delayed.delayed_fetch import DelayedFetch
from barnabas.broker.replication.idle_partitions import Watcher
from barnabas.broker.replication.reading import CONSUMER_ID, FetchItem, FetchParams, Read, ReadResult, refused
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer, Park
from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.metadata.metadata_cache import TopicInfo
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.schema import Message

TOPIC_IDS_FROM = 13
REPLICA_STATE_FROM = 15
REDIRECTS_FROM = 16
PREFERRED_REPLICA_FROM = 11
STORAGE_ERROR_FROM = 6
_RESPONSE_BYTES = 24  # of a response without partitions
_PARTITION_BYTES = 64  # of a partition without records
# Why: most partitions of most responses have these, which nobody changes; each new one would be made and freed again.
_NO_EPOCH_END: Final = EpochEndOffset()
_NO_LEADER: Final = LeaderIdAndEpoch()
_NO_SNAPSHOT: Final = SnapshotId()
REDIRECTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def handle(services: Services, request: Request) -> Answer:
    """Read the partitions of the session; answer, or wait for more bytes."""
    message: FetchRequest = request.message
    params = _params(services, request, message)
    request.is_follower = params.is_from_follower
    # Why the right: a node's session takes the place of clients' sessions.
    is_node = params.is_from_follower and (request.access is None or request.access.is_node)
    context = _context(services, request, message, params, is_follower=is_node)
    if context.error:
        return Reply(FetchResponse(error_code=context.error, session_id=context.session_id, responses=[]))
    errors: list[tuple[FetchItem, ErrorCode]] = []
    items = _known_items(services, context, errors)
    if request.access is not None:
        items = _allowed_items(request, params, context, items, errors)

    def respond(reads: list[Read]) -> Message:
        return _respond(services, request, params, context, reads, errors)

    manager = services.replica_manager
    reads = manager.reader.read_all(params, items, request.moved)
    if (
        params.max_wait_ms <= 0
        or not (items or context.has_idle)
        or (errors and params.is_from_follower)
        or sum(result.size for _, result in reads) >= params.min_bytes
        or any(result.is_final for _, result in reads)
    ):
        return Reply(respond(reads))
    operation = DelayedFetch(
        manager.reader, manager.expirations, params, reads, respond, context.woken, context.idle_items
    )
    return Park(operation, services.purgatories.fetch, [*(item.tp for item in items), *context.wait_keys()])


def _params(services: Services, request: Request, message: FetchRequest) -> FetchParams:
    version = request.version
    if version >= REPLICA_STATE_FROM:
        replica_id, replica_epoch = message.replica_state.replica_id, message.replica_state.replica_epoch
    else:
        replica_id, replica_epoch = message.replica_id, -1
    is_follower = replica_id >= 0
    if is_follower:
        isolation = FetchIsolation.LOG_END
    elif message.isolation_level == 1:
        isolation = FetchIsolation.TXN_COMMITTED
    else:
        isolation = FetchIsolation.HIGH_WATERMARK
    max_bytes = min(message.max_bytes, services.config.fetch_max_bytes)
    if not is_follower and services.quotas.fetch is not None:
        max_bytes = services.quotas.fetch_bytes_max(request, max_bytes)
    return FetchParams(
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        max_wait_ms=message.max_wait_ms,
        min_bytes=min(message.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation=isolation,
        leader_only=is_follower or (replica_id == CONSUMER_ID and version < PREFERRED_REPLICA_FROM),
        rack_id=message.rack_id,
        listener_name=request.listener_name,
    )


def _watcher(services: Services, request: Request, params: FetchParams) -> Watcher | None:
    """Return what the answers depend on; None for a client to which idle partitions may have to tell something."""
    if params.is_from_follower:
        if services.metadata_cache.snapshot.is_outdated(params.replica_id, params.replica_epoch):
            return None
    elif params.rack_id:
        return None  # a preferred replica may be found at any time
    access = request.access
    rights = None if access is None else (access.principal, access.host, access.generation)
    return Watcher(params.replica_id, params.replica_epoch, params.isolation, params.leader_only, rights)


def _context(
    services: Services, request: Request, message: FetchRequest, params: FetchParams, *, is_follower: bool
) -> FetchContext:
    version = request.version
    snapshot = services.metadata_cache.snapshot
    name_of = services.replica_manager.hosted.name_of
    forgotten: list[tuple[bytes | str, int]]
    if version >= TOPIC_IDS_FROM:
        names = snapshot.topic_names
        items = [
            item_of(topic, partition, name_of(names.get(topic.topic_id, ""), partition.partition))
            for topic in message.topics
            for partition in topic.partitions
        ]
        forgotten = [(t.topic_id, index) for t in message.forgotten_topics_data for index in t.partitions]
    else:
        items = [
            item_of(topic, partition, name_of(topic.topic, partition.partition))
            for topic in message.topics
            for partition in topic.partitions
        ]
        forgotten = [(t.topic, index) for t in message.forgotten_topics_data for index in t.partitions]
    return services.fetch_sessions.context(
        version,
        message.session_id,
        message.session_epoch,
        items,
        forgotten,
        snapshot.topic_name,
        is_follower=is_follower,
        watcher_of=lambda: _watcher(services, request, params),
    )


def _known_items(
    services: Services, context: FetchContext, errors: list[tuple[FetchItem, ErrorCode]]
) -> list[FetchItem]:
    """The partitions that exist; the others are added to `errors`."""
    topics = services.metadata_cache.snapshot.topics
    known = []
    name = ""
    topic: TopicInfo | None = None
    for item in context.items:
        tp = item.tp
        if tp.topic is not name:  # neighbours mostly are of the same topic
            name = tp.topic
            topic = topics.get(name)
        if not name:
            errors.append((item, ErrorCode.UNKNOWN_TOPIC_ID))
        elif topic is None or tp.partition not in topic.partitions:
            errors.append((item, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            known.append(item)
    return known


def _allowed_items(
    request: Request,
    params: FetchParams,
    context: FetchContext,
    known: list[FetchItem],
    errors: list[tuple[FetchItem, ErrorCode]],
) -> list[FetchItem]:
    """Return the partitions that the client may read; the others replace what `errors` says of them.

    A client that may not read a topic does not learn whether it has the partition. An unknown id has no name to ask
    about.
    """
    access = request.access
    assert access is not None
    if params.is_from_follower:
        if access.allows(rights.FETCH_AS_REPLICA):
            return known
        errors[:] = [(item, rights.FETCH_AS_REPLICA.error) for item in context.items]
        return []
    allowed = access.allowed(rights.FETCH_TOPIC, [item.tp.topic for item in context.items if item.tp.topic])
    for i, (item, _) in enumerate(errors):
        if item.tp.topic and item.tp.topic not in allowed:
            errors[i] = (item, rights.FETCH_TOPIC.error)
    errors += [(item, rights.FETCH_TOPIC.error) for item in known if item.tp.topic not in allowed]
    return [item for item in known if item.tp.topic in allowed]


def _revoked_items(request: Request, params: FetchParams, reads: list[Read]) -> list[tuple[FetchItem, ErrorCode]]:
    """Return the partitions that the client may not read any more: its request can have waited for weeks."""
    before = request.access
    if before is None or (access := before.renewed()) is before:
        return []
    if params.is_from_follower:
        error = rights.FETCH_AS_REPLICA.error
        return [] if access.allows(rights.FETCH_AS_REPLICA) else [(item, error) for item, _ in reads]
    allowed = access.allowed(rights.FETCH_TOPIC, [item.tp.topic for item, _ in reads])
    return [(item, rights.FETCH_TOPIC.error) for item, _ in reads if item.tp.topic not in allowed]


def _respond(
    services: Services,
    request: Request,
    params: FetchParams,
    context: FetchContext,
    reads: list[Read],
    errors: list[tuple[FetchItem, ErrorCode]],
) -> FetchResponse:
    if revoked := _revoked_items(request, params, reads):
        errors = errors + revoked
        gone = {item.tp for item, _ in revoked}
        reads = [read for read in reads if read[0].tp not in gone]
    answered = [*reads, *((item, refused(error)) for item, error in errors)] if errors else reads
    if services.quotas.is_active and not params.is_from_follower:
        throttle = request.throttle = services.quotas.charge_fetch(request, _size_of(answered))
        if throttle.ms:
            error, session_id = context.throttled()
            return FetchResponse(error_code=error, session_id=session_id, responses=[], throttle_time_ms=throttle.ms)
    error, session_id, named = context.finish(answered)
    nodes: dict[int, NodeEndpoint] = {}
    topics = _group(services, request, named, nodes)
    response = FetchResponse(error_code=error, session_id=session_id, responses=topics)
    if nodes and not params.is_from_follower:  # a follower learns of leaders by the controller's pushes
        response.node_endpoints = list(nodes.values())
    _count_bytes(services, params, named)
    return response


def _size_of(answered: list[Read]) -> int:
    """Return the size of a response, nearly: the names of topics are left out."""
    sizes = [result.size for _, result in answered if result.size]
    return _RESPONSE_BYTES + len(sizes) * _PARTITION_BYTES + sum(sizes)


def _partition_data(
    services: Services, request: Request, item: FetchItem, result: ReadResult, nodes: dict[int, NodeEndpoint]
) -> PartitionData:
    error = result.error
    if error:
        if error == ErrorCode.KAFKA_STORAGE_ERROR and request.version < STORAGE_ERROR_FROM:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = _error_data(item, error)
        if not result.was_read:
            return data
        if error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            data.aborted_transactions = None  # Why: Kafka's list is empty only where it did not read a partition
        if request.version >= REDIRECTS_FROM and error in REDIRECTED:
            leader_id, leader_epoch, node = current_leader(services, request, item.tp)
            data.current_leader.leader_id = leader_id
            data.current_leader.leader_epoch = leader_epoch
            if node is not None:
                nodes[node.id] = NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        return data
    read = result.data
    diverging = result.diverging
    partition_data = PartitionData(
        partition_index=item.tp.partition,
        error_code=0,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        diverging_epoch=_NO_EPOCH_END
        if diverging is None
        else EpochEndOffset(epoch=diverging.leader_epoch, end_offset=diverging.end_offset),
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=None,
        preferred_read_replica=result.preferred_read_replica,
        records=b"" if read is None or read.slice is None else read.slice,
    )
    if read is not None and read.aborted_transactions is not None:
        partition_data.aborted_transactions = [
            AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
            for a in read.aborted_transactions
        ]
    return partition_data


def _error_data(item: FetchItem, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=item.tp.partition, error_code=error, high_watermark=-1, records=b"", aborted_transactions=[]
    )


def _group(
    services: Services, request: Request, named: list[Read], nodes: dict[int, NodeEndpoint]
) -> list[FetchableTopicResponse]:
    """Group neighbours of the same topic; add current leaders that the client does not know to `nodes`."""
    uses_ids = request.version >= TOPIC_IDS_FROM
    topics: list[FetchableTopicResponse] = []
    last: object = None
    for item, result in named:
        name = item.topic_id if uses_ids else item.tp.topic
        if name != last:
            last = name
            topics.append(
                FetchableTopicResponse(topic=item.tp.topic, topic_id=item.topic_id or ZERO_UUID, partitions=[])
            )
        topics[-1].partitions.append(_partition_data(services, request, item, result, nodes))
    return topics


def _count_bytes(services: Services, params: FetchParams, named: list[Read]) -> None:
    stats = services.replica_manager.stats
    for item, result in named:
        size = result.size
        if not size:
            continue
        if params.is_from_follower:
            stats.replication_bytes_out(size)
            services.replica_manager.quotas.leader.record(item.tp, size)
        else:
            stats.topic(item.tp.topic).sent(size)


def _is_from_follower(request: Request) -> bool:
    message: FetchRequest = request.message
    id_ = message.replica_state.replica_id if request.version >= REPLICA_STATE_FROM else message.replica_id
    return id_ >= 0


API = Api(1, "Fetch", (4, 18), handle, nodes_only=_is_from_follower)
