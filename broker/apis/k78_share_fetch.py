"""ShareFetch: v1-v2

Behaviour
- A member of a share group fetches records, which it then holds for share.record.lock.duration.ms, and acknowledges
  what it got before. Acknowledgements of records are those of ShareAcknowledge.
- The share session remembers the partitions: epoch 0 begins it and names all, later requests name changes, -1 ends it
  and releases what the member holds.
- The response has the acquired records: ranges of offsets with their delivery counts, and the record batches that
  contain them. Offsets of these batches outside the ranges are not the member's.
- It is sent when min_bytes can be acquired, at the latest after max_wait_ms, and not before the acknowledgements are
  written. Up to max_records are acquired, and the record batch in which the limit lies to its end.
- A request with is_renew_ack fetches nothing.

Version notes: v2 renewal (KIP-1222), and share_acquire_mode (KIP-1206): 1 acquires not more than max_records.

Errors: UNSUPPORTED_VERSION (share.version is 0), INVALID_REQUEST, SHARE_SESSION_NOT_FOUND,
INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_LIMIT_REACHED (after max_wait_ms), GROUP_AUTHORIZATION_FAILED; of a
partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER,
COORDINATOR_NOT_AVAILABLE, GROUP_ID_NOT_FOUND, KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR.

Different from Apache Kafka: the response to a client over its quota has the records, since it has acquired them; the
client waits afterwards. An unknown share_acquire_mode is INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.share_requests import Acknowledging, Places, member_of, redirect
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.monitoring.topic_stats import FAILED_SHARE_FETCH, SHARE_FETCHES
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer, Continuation, Park
from barnabas.broker.share.acknowledgements import RENEW_FROM
from barnabas.broker.share.delayed_share_fetch import DelayedShareFetch, ShareFetchParams, ShareRead
from barnabas.broker.share.partition.values import AcquireMode
from barnabas.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Member, Place
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k78_share_fetch import (
    AcquiredRecords,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request
    from barnabas.broker.share.led_partition import LedSharePartition
    from barnabas.broker.share.manager import Outcomes

_RESPONSE_BYTES = 24  # of a response without partitions
_PARTITION_BYTES = 64  # of a partition without records


def handle(services: Services, request: Request) -> Answer:
    """Acknowledge, fetch, and answer when both are done."""
    member = member_of(services, request.message)
    _check(request)
    try:
        session_places = _session(services, request, member)
    except ApiError as error:
        if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        return _refuse_later(services, request)
    return _ShareFetch(services, request, member, session_places).begin()


def _check(request: Request) -> None:
    message: ShareFetchRequest = request.message
    if request.version >= RENEW_FROM and message.is_renew_ack:
        wrong = [
            name for name in ("max_bytes", "min_bytes", "max_records", "max_wait_ms") if getattr(message, name) != 0
        ]
        if wrong:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(wrong)} must be 0 if is_renew_ack is true.")
    if message.share_acquire_mode not in AcquireMode.__members__.values():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown share acquire mode {message.share_acquire_mode}.")


def _has_acknowledgements(message: ShareFetchRequest) -> bool:
    return any(partition.acknowledgement_batches for topic in message.topics for partition in topic.partitions)


def _named(message: ShareFetchRequest) -> list[Place]:
    return [Place(topic.topic_id, part.partition_index) for topic in message.topics for part in topic.partitions]


def _session(services: Services, request: Request, member: Member) -> list[Place]:
    """Take the request as the next of its session; return the partitions to fetch, in their order."""
    message: ShareFetchRequest = request.message
    manager, epoch = services.share_partitions, message.share_session_epoch
    sessions = manager.sessions
    named = _named(message)
    if epoch == FINAL_EPOCH:
        sessions.require(member)
        return []
    if epoch == INITIAL_EPOCH:
        if _has_acknowledgements(message):
            raise ApiError(ErrorCode.INVALID_REQUEST)
        connection_id = request.context.connection_id
        sessions.begin(member, named, connection_id)
        manager.follow_connection(member, request.connection, connection_id)
        return list(dict.fromkeys(named))
    forgotten = [Place(topic.topic_id, index) for topic in message.forgotten_topics_data for index in topic.partitions]
    places = sessions.update(member, epoch, named, forgotten)
    turn = epoch % len(places) if places else 0  # so that each partition comes first from time to time
    return places[turn:] + places[:turn]


def _refuse_later(services: Services, request: Request) -> Answer:
    """Refuse a session for which there is no room, after the wait of a fetch: else the client asks on and on."""
    response = error_response(request.message, request.version, ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    wait_ms = max(0, request.message.max_wait_ms)
    return Park(Deferred(wait_ms, lambda: response), services.purgatories.share_fetch)


class _ShareFetch:
    """One request on its way."""

    def __init__(self, services: Services, request: Request, member: Member, wanted: list[Place]) -> None:
        self._services = services
        self._request = request
        self._message: ShareFetchRequest = request.message
        self._member = member
        self._wanted = wanted
        self._places = Places(services, request, rights.SHARE_FETCH_TOPIC, [*wanted, *_named(self._message)])
        self._acknowledging: Acknowledging | None = None
        self._errors: dict[Place, ErrorCode] = {}
        self._operation: DelayedShareFetch | None = None

    def begin(self) -> Answer:
        """Acknowledge, then fetch."""
        if _has_acknowledgements(self._message):
            self._acknowledging = Acknowledging(self._services, self._request, self._member, self._places)
        is_renewal = self._request.version >= RENEW_FROM and self._message.is_renew_ack
        led = [] if is_renewal else self._partitions()
        params = self._params()
        if not led or params.max_records <= 0 or params.max_bytes <= 0:
            return self._fetched()
        manager = self._services.share_partitions
        hosted = self._services.replica_manager.hosted
        self._operation = DelayedShareFetch(params, led, hosted, manager.wakes, manager.sensors)
        return Continuation(self._operation, self._fetched, manager.purgatory, self._operation.keys())

    def _partitions(self) -> list[LedSharePartition]:
        """Return the share partitions to fetch from; the others are noted with their errors."""
        services, group_id = self._services, self._member.group_id
        found = []
        topics = set()
        for place in self._wanted:
            error = self._places.error(place)
            if not error:
                topic = self._places.topic(place)
                topics.add(topic)
                try:
                    found.append(services.share_partitions.get(group_id, topic, place))
                except ApiError as refused:
                    error = refused.code
            if error:
                self._errors[place] = error
        self._count(SHARE_FETCHES, topics)
        return found

    def _count(self, index: int, topics: set[str]) -> None:
        stats = self._services.replica_manager.stats
        for topic in topics:
            stats.topic(topic).count(index)

    def _params(self) -> ShareFetchParams:
        services, message = self._services, self._message
        max_bytes = min(message.max_bytes, services.config.fetch_max_bytes)
        if services.quotas.fetch is not None:
            max_bytes = services.quotas.fetch_bytes_max(self._request, max_bytes)
        return ShareFetchParams(
            member_id=self._member.member_id,
            max_wait_ms=message.max_wait_ms,
            min_bytes=min(message.min_bytes, max_bytes),
            max_bytes=max_bytes,
            max_records=message.max_records,
            batch_size=max(1, message.batch_size),
            mode=AcquireMode(message.share_acquire_mode),
            isolation=services.share_partitions.settings.of(self._member.group_id).isolation,
        )

    def _fetched(self) -> Answer:
        """Wait for the acknowledgements, if there are any."""
        if self._acknowledging is None:
            return self._respond()
        return Continuation(self._acknowledging.wait, self._respond)

    def _respond(self) -> Reply:
        services, request, message = self._services, self._request, self._message
        nodes: dict[int, NodeEndpoint] = {}
        answered = {place: _error_data(place, error) for place, error in self._errors.items()}
        if self._operation is not None:
            answered.update(self._read(self._operation.results))
        failed = set()
        for place, data in answered.items():
            redirect(services, request, self._places.topic(place), data, nodes, NodeEndpoint)
            # Why not what it may not name: as in Kafka, and clients can invent names for ever.
            if data.error_code and not self._places.error(place):
                failed.add(self._places.topic(place))
        self._count(FAILED_SHARE_FETCH, failed)
        epoch = message.share_session_epoch
        if epoch > INITIAL_EPOCH:
            named = services.share_partitions.sessions.answered(
                self._member,
                epoch,
                [place for place, data in answered.items() if data.acquired_records],
                [place for place, data in answered.items() if data.error_code],
            )
            if named is None:
                return Reply(error_response(message, request.version, ErrorCode.INVALID_SHARE_SESSION_EPOCH))
            answered = {place: data for place, data in answered.items() if place in named}
        if self._acknowledging is not None:
            _add_outcomes(answered, self._acknowledging.outcomes())
        if epoch == FINAL_EPOCH:
            services.share_partitions.end_session(self._member)
        limits = services.share_partitions.settings.of(self._member.group_id).limits
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=limits.lock_duration_ms,
            responses=_grouped(answered),
            node_endpoints=list(nodes.values()),
        )
        self._charge(response, answered)
        return Reply(response)

    def _read(self, results: dict[LedSharePartition, ShareRead]) -> dict[Place, PartitionData]:
        """Return what was read, without what the client may not read any more: it can have waited for long."""
        now = None if self._request.access is None else self._request.access.renewed()
        if now is not None:
            now.require(rights.SHARE_FETCH_GROUP, self._member.group_id)
        read = {}
        for led, result in results.items():
            place = Place(led.key.topic_id, led.key.partition)
            error = result.error
            if now is not None and not now.has(rights.SHARE_FETCH_TOPIC, led.tp.topic):
                error = rights.SHARE_FETCH_TOPIC.error or ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if error:
                read[place] = _error_data(place, error)
                continue
            read[place] = PartitionData(
                partition_index=place.partition,
                records=b"" if result.records is None else result.records,
                acquired_records=[
                    AcquiredRecords(first_offset=each.first, last_offset=each.last, delivery_count=each.delivery_count)
                    for each in result.acquired
                ],
            )
        return read

    def _charge(self, response: ShareFetchResponse, answered: dict[Place, PartitionData]) -> None:
        """Count the bytes, and charge them to the client's quota."""
        services = self._services
        total = _RESPONSE_BYTES + _PARTITION_BYTES * len(answered)
        for place, data in answered.items():
            size = data.records.size if data.acquired_records else 0
            if size:
                services.replica_manager.stats.topic(self._places.topic(place)).sent(size)
                total += size
        if services.quotas.is_active:
            throttle = self._request.throttle = services.quotas.charge_fetch(self._request, total, is_sent=True)
            response.throttle_time_ms = throttle.ms


def _error_data(place: Place, error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=place.partition, error_code=error, records=b"")


def _add_outcomes(answered: dict[Place, PartitionData], outcomes: Outcomes) -> None:
    """Add what became of the acknowledgements to the partitions that are named, and name the others."""
    for place, outcome in outcomes.items():
        data = answered.get(place)
        if data is None:
            data = answered[place] = _error_data(place, ErrorCode.NONE)
        data.acknowledge_error_code = outcome.error
        data.acknowledge_error_message = outcome.message or None


def _grouped(answered: dict[Place, PartitionData]) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for place, data in answered.items():
        topic = topics.get(place.topic_id)
        if topic is None:
            topic = topics[place.topic_id] = ShareFetchableTopicResponse(topic_id=place.topic_id, partitions=[])
        topic.partitions.append(data)
    return list(topics.values())


API = Api(78, "ShareFetch", (1, 2), handle)
