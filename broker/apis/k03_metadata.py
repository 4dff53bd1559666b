"""Metadata: v0-v13

Behaviour
- Lists the live brokers, with the address that they advertise for the request's listener, and the requested topics, by
  name or by id. Every field comes from one snapshot of the cache. While no broker is live, those that were last are
  listed, or this one if it has just started: librdkafka forgets all others, and then has none to ask.
- Clients repeat the same query often. So a response is cached, encoded, with the snapshot that it was made from. The
  exception is a response that names a missing topic, which may have to be created.
- A missing topic is created if client and broker (auto.create.topics.enable) allow it. Until it exists the client gets
  UNKNOWN_TOPIC_OR_PARTITION and retries.
- The controller's id is this broker's own while it is alive, else that of some live broker: clients may send admin
  requests to any broker, which forwards them.

Version notes
- v0: an empty topic list means all topics; a missing broker of a partition makes it REPLICA_NOT_AVAILABLE.
  v1: null means all, empty none. v4: allow_auto_topic_creation. v6: LISTENER_NOT_FOUND. v8 (KIP-430): authorized
  operations (the cluster's until v10). v10: topic ids in responses. v12: topics by id. v13: top-level error.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION, LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND,
REPLICA_NOT_AVAILABLE; INVALID_REQUEST for a null name or an id before v12.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from barnabas.broker.apis.authorized import NOT_REQUESTED, cluster_operations, operations
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.cached_responses import KEY_BYTES_MAX
from barnabas.broker.requests.parking import Answer
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_names import invalid_reason
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.security.values import ResourceType

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.metadata.metadata_cache import MetadataSnapshot, PartitionInfo, TopicInfo
    from barnabas.broker.requests.request import Request

IDS_FROM = 12
LISTENER_NOT_FOUND_FROM = 6
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)


def handle(services: Services, request: Request) -> Answer:
    """Answer from one snapshot of the cache."""
    snapshot = services.metadata_cache.snapshot
    controller_id = snapshot.controller_for_clients(services.broker_id)
    key = _key(request, controller_id)
    cached = snapshot.responses.get(key) if key is not None else None
    if cached is None:
        answer = _answer(services, request, snapshot, controller_id)
        if key is None or any(topic.error_code for topic in answer.topics):
            return Reply(answer)
        cached = snapshot.responses.put(key, answer, request.version)
    request.error_codes = cached.error_codes
    return Reply(cached.message, encoded=cached.encoded)


def _key(request: Request, controller_id: int) -> Hashable | None:
    """Return all that the response depends on besides the snapshot; None if it is too long or not from a frame."""
    if request.buffer is None or request.header_bytes == 0:
        return None
    body = request.buffer[request.header_bytes :]
    if len(body) > KEY_BYTES_MAX:
        return None
    access = request.access
    who = None if access is None else (access.principal, access.host, access.generation)
    return (who, request.listener_name, request.version, controller_id, bytes(body))


def _answer(services: Services, request: Request, snapshot: MetadataSnapshot, controller_id: int) -> MetadataResponse:
    message: MetadataRequest = request.message
    version = request.version
    _check(message, version)
    alive = {node.id for node in snapshot.nodes(request.listener_name)}
    topics = _topics(services, request, message, snapshot, alive=alive)
    if message.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code not in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID):
                topic.topic_authorized_operations = operations(request, ResourceType.TOPIC, topic.name or "")
    includes_cluster = version in CLUSTER_OPERATIONS_VERSIONS and message.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in snapshot.nodes_for_clients(request.listener_name)
        ],
        cluster_id=services.cluster_id,
        controller_id=controller_id,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(request, rights.METADATA_CLUSTER) if includes_cluster else NOT_REQUESTED
        ),
    )


def _check(message: MetadataRequest, version: int) -> None:
    if version >= IDS_FROM or message.topics is None:
        return
    for topic in message.topics:
        if topic.name is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}")
        if topic.topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Topic IDs are not supported in requests for version {version}")


def _topics(
    services: Services, request: Request, message: MetadataRequest, snapshot: MetadataSnapshot, *, alive: set[int]
) -> list[MetadataResponseTopic]:
    """Describe the requested topics; `alive` are the ids of the brokers that the client can reach."""
    version = request.version
    requested = message.topics
    access = request.access
    if requested is None or (version == 0 and not requested):
        visible = None if access is None else access.allowed(rights.METADATA_ALL_TOPICS, snapshot.topics)
        return [
            _known_topic(snapshot, topic, alive, version)
            for topic in snapshot.topics.values()
            if visible is None or topic.name in visible
        ]
    ids = dict.fromkeys(topic.topic_id for topic in requested if topic.topic_id != ZERO_UUID)
    if ids:
        return [_topic_by_id(snapshot, topic_id, alive, request) for topic_id in ids]
    found = []
    missing = []
    hidden = []
    for name in dict.fromkeys(topic.name or "" for topic in requested):
        topic = snapshot.topics.get(name)
        if access is not None and not access.allows(rights.METADATA_TOPIC, name):
            # Why first, and without id: the client must not learn whether the topic exists.
            hidden.append(_refused_topic(name, rights.METADATA_TOPIC.error))
        elif topic is None:
            missing.append(name)
        else:
            found.append(_known_topic(snapshot, topic, alive, version))
    creates = services.config.auto_create_topics_enable and message.allow_auto_topic_creation
    if creates and missing and access is not None and not access.allows(rights.METADATA_CREATE_ANY):
        creatable = access.allowed(rights.METADATA_CREATE_TOPIC, missing)
        hidden = [
            MetadataResponseTopic(
                error_code=rights.METADATA_CREATE_TOPIC.error, name=name, is_internal=name in INTERNAL_TOPICS,
                partitions=[],
            )
            for name in missing
            if name not in creatable
        ] + hidden  # fmt: skip
        missing = [name for name in missing if name in creatable]
    return [*found, *_missing_topics(services, request, missing, creates=creates), *hidden]


def _refused_topic(name: str | None, error: ErrorCode, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=[])


def _missing_topics(
    services: Services, request: Request, names: list[str], *, creates: bool
) -> Iterable[MetadataResponseTopic]:
    legal = dict.fromkeys(name for name in names if invalid_reason(name) is None)
    if creates and legal:
        services.auto_topic_creation.create(legal, request)
    for name in names:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name in legal else ErrorCode.INVALID_TOPIC_EXCEPTION
        yield MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[])


def _topic_by_id(
    snapshot: MetadataSnapshot, topic_id: bytes, alive: set[int], request: Request
) -> MetadataResponseTopic:
    access, version = request.access, request.version
    name = snapshot.topic_name(topic_id)
    if name is None:
        return _refused_topic(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    if access is not None and not access.allows(rights.METADATA_TOPIC, name):
        return _refused_topic(None, rights.METADATA_TOPIC.error, topic_id)  # the id says nothing that is not known
    return _known_topic(snapshot, snapshot.topics[name], alive, version)


def _known_topic(snapshot: MetadataSnapshot, topic: TopicInfo, alive: set[int], version: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(snapshot, p, alive, version) for p in topic.partitions.values()],
    )


def _partition(
    snapshot: MetadataSnapshot, p: PartitionInfo, alive: set[int], version: int
) -> MetadataResponsePartition:
    replicas, isr = list(p.replicas), list(p.isr)
    if version == 0:
        replicas, isr = [r for r in replicas if r in alive], [r for r in isr if r in alive]
    if p.leader in alive:
        is_partial = len(replicas) < len(p.replicas) or len(isr) < len(p.isr)
        error = ErrorCode.REPLICA_NOT_AVAILABLE if is_partial else ErrorCode.NONE
    elif snapshot.is_alive(p.leader) and version >= LISTENER_NOT_FOUND_FROM:
        error = ErrorCode.LISTENER_NOT_FOUND
    else:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=p.partition,
        leader_id=p.leader if p.leader in alive else -1,
        leader_epoch=p.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=p.offline_for(alive),
    )


API = Api(3, "Metadata", (0, 13), handle)
