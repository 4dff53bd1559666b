"""What ShareFetch and ShareAcknowledge have in common: checks, acknowledgements, and the leader of a partition.

Source: Kafka's KafkaApis.handleAcknowledgements, getAcknowledgeBatchesFromShareFetchRequest (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.apis.redirect import current_leader
from barnabas.broker.monitoring.topic_stats import FAILED_SHARE_ACKNOWLEDGEMENT, SHARE_ACKNOWLEDGEMENTS
from barnabas.broker.share.acknowledgements import AcknowledgementWait, are_valid, is_member_id_valid
from barnabas.broker.share.led_partition import DONE, Outcome
from barnabas.broker.share.partition.values import Acknowledgement
from barnabas.broker.share.sessions import Member, Place
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.row import Row
    from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
    from barnabas.broker.requests.request import Request
    from barnabas.broker.share.manager import Outcomes
    from barnabas.protocol.messages.k78_share_fetch import FetchTopic
    from barnabas.protocol.messages.k79_share_acknowledge import AcknowledgeTopic

#: Errors after which a client is told who leads.
REDIRECTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def member_of(services: Services, message: Any) -> Member:
    """Return the member that sends a request; raises UNSUPPORTED_VERSION (share groups are off) or INVALID_REQUEST."""
    if not services.share_groups.is_enabled:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if message.group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not is_member_id_valid(message.member_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return Member(message.group_id, message.member_id)


class Places:
    """The partitions that a request may name: by topic id, with the client's rights."""

    def __init__(self, services: Services, request: Request, topic_row: Row, places: Iterable[Place]) -> None:
        self._snapshot: MetadataSnapshot = services.metadata_cache.snapshot
        self._names = {place.topic_id: self._snapshot.topic_names.get(place.topic_id) for place in places}
        access = request.access
        self._allowed: set[str] | None = None
        if access is not None:
            self._allowed = access.allowed(topic_row, [name for name in self._names.values() if name is not None])

    def topic(self, place: Place) -> str:
        """Return the name of a partition's topic; "" for an unknown id."""
        return self._names.get(place.topic_id) or ""

    def error(self, place: Place) -> ErrorCode:
        """Return why the client gets nothing of a partition; NONE if it may."""
        name = self._names.get(place.topic_id)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._allowed is not None and name not in self._allowed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._snapshot.partition(TopicPartition(name, place.partition)) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE


class Acknowledging:
    """The acknowledgements of one request: those refused at once, and the wait for the others."""

    def __init__(self, services: Services, request: Request, member: Member, places: Places) -> None:
        self._stats = services.replica_manager.stats
        self._places = places
        self._refused: Outcomes = {}
        self.wait = AcknowledgementWait()
        message, version = request.message, request.version
        wanted: dict[Place, Sequence[Acknowledgement]] = {}
        for place, acknowledgements in acknowledgements_of(message.topics):
            error = places.error(place)
            if error == ErrorCode.UNKNOWN_TOPIC_ID:
                self._refuse(place, error)
            elif not are_valid(acknowledgements, version, is_renew_ack=message.is_renew_ack):
                self._refuse(place, ErrorCode.INVALID_REQUEST)
            elif error or not acknowledgements:
                self._refuse(place, error)
            else:
                wanted[place] = acknowledgements
        for topic in {places.topic(place) for place in wanted}:
            self._stats.topic(topic).count(SHARE_ACKNOWLEDGEMENTS)
        self.wait.begin(services.share_partitions, member, wanted)

    def _refuse(self, place: Place, error: ErrorCode) -> None:
        self._refused[place] = Outcome(error, "") if error else DONE

    def outcomes(self) -> Outcomes:
        """Return what became of each partition; after the wait has ended."""
        ended = self.wait.outcomes
        for topic in {self._places.topic(place) for place, outcome in ended.items() if outcome.error}:
            self._stats.topic(topic).count(FAILED_SHARE_ACKNOWLEDGEMENT)
        return {**ended, **self._refused}


def acknowledgements_of(
    topics: Iterable[FetchTopic | AcknowledgeTopic],
) -> Iterable[tuple[Place, list[Acknowledgement]]]:
    """Return the acknowledgements of a request by partition; of a partition named twice, the later ones."""
    found: dict[Place, list[Acknowledgement]] = {}
    for topic in topics:
        for partition in topic.partitions:
            found[Place(topic.topic_id, partition.partition_index)] = [
                Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in partition.acknowledgement_batches
            ]
    return found.items()


def redirect(services: Services, request: Request, topic: str, data: Any, nodes: dict[int, Any], endpoint: Any) -> None:
    """Tell the client who leads a partition, if this broker does not."""
    if data.error_code not in REDIRECTED:
        return
    tp = TopicPartition(topic, data.partition_index)
    leader_id, leader_epoch, node = current_leader(services, request, tp)
    data.current_leader.leader_id = leader_id
    data.current_leader.leader_epoch = leader_epoch
    if node is not None:
        nodes[node.id] = endpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
