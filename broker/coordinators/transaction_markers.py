"""Markers: the control batches that end a transaction in every partition that it wrote to.

Two halves: `MarkerWriter` appends markers to partitions that this broker leads (a WriteTxnMarkers of another
coordinator, or of our own); `MarkerSender` brings the markers of our own transactions to the leaders, again and again
until each partition has its own.

Rules
1. A partition that leads elsewhere by now, is not replicated well enough, or whose leader is away, is tried again at
   whoever leads it then. The only other ways out: the partition was deleted; it has seen a newer coordinator or
   producer; our shard was closed.
2. A partition that the metadata does not know may have been deleted, or its news may not have reached this broker yet:
   it counts as deleted after some looks.
3. Waiting fetches of followers are woken when all markers of a call are in the logs. Why: a follower gets all of them
   with one fetch, rather than the first with one and the others with the next.
4. Offsets that a transaction commits count from the marker in __consumer_offsets on: the group coordinator writes it.

Threads: `TxnMarkerSenderThread-<id>-to-<broker>` for each leader, this broker included; the writer is called by these
and by handlers.
Source: Kafka's TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler,
KafkaApis.handleWriteTxnMarkersRequest (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.broker_senders import BrokerSenders
from barnabas.broker.coordinators.transaction_marker import Marker
from barnabas.broker.gathering import Gathering
from barnabas.broker.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.broker.coordinators.transaction_shard import Completion
    from barnabas.broker.metadata_cache import MetadataCache
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.transaction.markers")

RETRY_MS: Final = 100
LOOKS_UNTIL_DELETED: Final = 10
NO_LEADER_DESTINATION: Final = -1
REQUEST_VERSION: Final = 2

Errors = dict[TopicPartition, ErrorCode]
Order = tuple[Marker, Collection[TopicPartition], Callable[[Errors], object]]  # what, where, reply

#: Part of normal life while leaders move.
EXPECTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
#: Somebody newer has taken the transaction over.
OVERTAKEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
#: What the group coordinator says while it has moved or loads; the coordinator of transactions knows partitions only.
GROUP_COORDINATOR_AWAY: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)


class MarkerWriter:
    """Appends markers to partitions that this broker leads."""

    def __init__(
        self, replica_manager: ReplicaManager, group_coordinator: GroupCoordinator, clock: Clock, timeout_ms: int
    ) -> None:
        self._replica_manager = replica_manager  # fixed before start
        self._group_coordinator = group_coordinator  # fixed before start
        self._clock = clock  # fixed before start
        self._timeout_ms = timeout_ms  # fixed before start

    def write(self, orders: Iterable[Order]) -> None:
        """Append markers (rule 3); each order's `reply(errors by partition)` is called once, on any thread."""
        moved: set[TopicPartition] = set()
        for marker, partitions, reply in orders:
            gathering: Gathering[TopicPartition, ErrorCode] = Gathering(len(partitions), reply)
            for tp in partitions:
                self._write_one(marker, tp, partial(gathering.add, tp), moved)
        for tp in moved:
            self._replica_manager.complete_delayed(tp)

    def _write_one(
        self, marker: Marker, tp: TopicPartition, done: Callable[[ErrorCode], None], moved: set[TopicPartition]
    ) -> None:
        if tp.topic == GROUP_METADATA_TOPIC:
            self._group_coordinator.end_transaction(
                tp,
                marker,
                lambda error: done(ErrorCode.NOT_LEADER_OR_FOLLOWER if error in GROUP_COORDINATOR_AWAY else error),
            )
            return
        try:
            self._replica_manager.append_internal(
                tp, marker.batch(self._clock.wall_ms()), self._timeout_ms, lambda error, _offset: done(error),
                moved=moved, transaction_version=marker.transaction_version,
            )  # fmt: skip
        except ApiError as error:
            done(error.code)


@dataclass(slots=True)
class Consignment:
    """Markers of one transaction for partitions of one leader."""

    completion: Completion
    partitions: list[TopicPartition]
    looks: dict[TopicPartition, int] = field(default_factory=dict)  # how often each was not in the metadata


class MarkerSender:
    """Brings markers to the leaders of their partitions."""

    def __init__(
        self,
        *,
        broker_id: int,
        clock: Clock,
        metadata_cache: MetadataCache,
        writer: MarkerWriter,
        listener_name: str,
        request_timeout_ms: int,
        connect: Connect = NodeConnection,
    ) -> None:
        self._broker_id = broker_id  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._writer = writer  # fixed before start
        self._listener_name = listener_name  # fixed before start
        self.senders: BrokerSenders[Consignment] = BrokerSenders(
            "TxnMarkerSenderThread", "txn-marker", broker_id, clock,
            node_of=lambda id_: metadata_cache.snapshot.node(id_, listener_name), carry=self._carry,
            request_timeout_ms=request_timeout_ms, connect=connect,
        )  # fmt: skip

    def shutdown(self) -> None:
        """End the threads."""
        self.senders.shutdown()

    def unknown_destinations(self) -> int:
        """Consignments whose partitions have no leader that is known, for metrics."""
        return self.senders.queue_size(NO_LEADER_DESTINATION)

    def send(self, completion: Completion, partitions: Collection[TopicPartition]) -> None:
        """Have the markers written; the completion's shard is told."""
        self._dispatch(completion, partitions, {})

    def _dispatch(
        self, completion: Completion, partitions: Iterable[TopicPartition], looks: Mapping[TopicPartition, int]
    ) -> None:
        """Sort partitions by who leads them now."""
        snapshot = self._metadata_cache.snapshot
        by_leader: dict[int, Consignment] = {}
        deleted: list[TopicPartition] = []
        for tp in partitions:
            info = snapshot.partition(tp)
            looked = looks.get(tp, 0) + 1 if info is None else 0
            if looked >= LOOKS_UNTIL_DELETED:
                deleted.append(tp)
                continue
            leader = NO_LEADER_DESTINATION
            if info is not None and snapshot.node(info.leader, self._listener_name) is not None:
                leader = info.leader
            consignment = by_leader.setdefault(leader, Consignment(completion, []))
            consignment.partitions.append(tp)
            if looked:
                consignment.looks[tp] = looked
        for leader, consignment in by_leader.items():
            self.senders.send(leader, consignment)
        if deleted:
            log.info("%s of %s need no markers any more: deleted", deleted, completion.transactional_id)
            completion.shard.marked(completion, deleted)

    # On a sender's thread

    def _carry(self, destination: int, connection: NodeConnection | None, items: list[Consignment]) -> None:
        wanted = [item for item in items if item.completion.shard.is_wanted(item.completion)]
        if not wanted:
            return
        if destination == self._broker_id:
            self._writer.write(
                [(_marker(item.completion), item.partitions, partial(self._take_result, item)) for item in wanted]
            )
        elif connection is None:
            self._again(wanted)
        else:
            self._send_request(connection, wanted)

    def _send_request(self, connection: NodeConnection, items: list[Consignment]) -> None:
        request = WriteTxnMarkersRequest(markers=[_wire_marker(item) for item in items])
        try:
            response = connection.send(request, REQUEST_VERSION)
        except NodeConnectionError as error:
            log.info("markers could not be sent: %s", error)
            self._again(items)
            return
        by_producer = _errors_by_producer(response)
        for item in items:
            told = by_producer.get(item.completion.producer_id, {})
            # Why the default: what was not answered is not known to be written; a marker may be written twice.
            self._take_result(item, {tp: told.get(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for tp in item.partitions})

    def _again(self, items: Sequence[Consignment]) -> None:
        """Try elsewhere, or the same once more, after a pause."""
        self.senders.is_stopping.wait(RETRY_MS / 1000)
        for item in items:
            self._dispatch(item.completion, item.partitions, item.looks)

    def _take_result(self, item: Consignment, errors: Errors) -> None:
        completion = item.completion
        done = [tp for tp, error in errors.items() if not error]
        failed = {tp: error for tp, error in errors.items() if error}
        if done:
            completion.shard.marked(completion, done)
        if not failed:
            return
        is_overtaken = not OVERTAKEN.isdisjoint(failed.values())
        level = logging.DEBUG if EXPECTED.issuperset(failed.values()) else logging.WARNING
        log.log(
            level, "markers of %s (producer %d, epoch %d) failed%s: %s", completion.transactional_id,
            completion.producer_id, completion.producer_epoch, " for good" if is_overtaken else "",
            {str(tp): error.name for tp, error in failed.items()},
        )  # fmt: skip
        if is_overtaken:
            completion.shard.abandoned(completion)
        else:
            # Why there: the pause before the next attempt is made by a thread that has nothing else to do.
            self.senders.send(NO_LEADER_DESTINATION, Consignment(completion, list(failed)))


def _marker(completion: Completion) -> Marker:
    return Marker(
        completion.producer_id, completion.producer_epoch, completion.is_commit, completion.coordinator_epoch,
        completion.transaction_version,
    )  # fmt: skip


def _wire_marker(item: Consignment) -> WritableTxnMarker:
    marker = _marker(item.completion)
    by_topic: dict[str, list[int]] = {}
    for tp in item.partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return WritableTxnMarker(
        producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=ids) for name, ids in by_topic.items()],
        coordinator_epoch=marker.coordinator_epoch, transaction_version=marker.transaction_version,
    )  # fmt: skip


def _errors_by_producer(response: Any) -> dict[int, Errors]:
    errors: dict[int, Errors] = {}
    for marker in response.markers:
        of_producer = errors.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                of_producer[tp] = ErrorCode(partition.error_code)
    return errors
