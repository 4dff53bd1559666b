"""Markers: the control batches that end a transaction in every partition that it wrote to.

`MarkerWriter` appends markers to partitions that this broker leads, for a WriteTxnMarkers of another coordinator or of
this one. `MarkerSender` sends the markers of this broker's transactions to the leaders, until each partition has one.

Rules
1. A partition is retried at its current leader if the leader has moved or is unavailable, or too few replicas are in
   sync. There are only three other ways to stop: the partition was deleted, it knows a newer coordinator or producer,
   or the shard was closed.
2. A partition that is missing from the metadata may have been deleted, or its creation may not have reached this broker
   yet. It counts as deleted after some attempts.
3. Waiting fetches of followers are woken when all markers of a call are in the logs. Why: a follower then gets all of
   them with one fetch.
4. The offsets that a transaction commits take effect with its marker in __consumer_offsets, which the group coordinator
   writes.

Threads: `TxnMarkerSenderThread-<id>-to-<broker>` for each leader, this broker included; these threads and handlers call
the writer.
Source: Kafka's TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler,
KafkaApis.handleWriteTxnMarkersRequest (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.channels.broker_senders import BrokerSenders
from barnabas.broker.coordinators.runtime.completion import Completion
from barnabas.broker.coordinators.transactions.marker import Marker
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.broker.requests.gathering import Gathering
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.topic_partition import TopicPartition, partitions_by_topic
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.coordinators.transactions.shard import PendingCompletion
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.transaction.markers")

RETRY_MS: Final = 100
MISSES_UNTIL_DELETED: Final = 10
NO_LEADER_DESTINATION: Final = -1
REQUEST_VERSION: Final = 2

Errors = dict[TopicPartition, ErrorCode]
Order = tuple[Marker, Collection[TopicPartition], Completion[Errors]]  # a marker, its partitions, their errors

#: Errors that are normal while leaders move.
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
#: A newer coordinator or producer has taken over the transaction.
OVERTAKEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
#: Errors of a group coordinator that has moved or is loading; here they are errors of its partition.
GROUP_COORDINATOR_AWAY: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)


class OffsetMarkers(Protocol):
    """The part of the group coordinator that the writer uses."""

    def end_transaction(self, tp: TopicPartition, marker: Marker, reply: Completion[ErrorCode]) -> None:
        """Write a marker to a partition of __consumer_offsets."""


class MarkerWriter:
    """Appends markers to partitions that this broker leads."""

    def __init__(
        self, replica_manager: ReplicaManager, group_coordinator: OffsetMarkers, clock: Clock, timeout_ms: int
    ) -> None:
        self._replica_manager = replica_manager  # fixed before start
        self._group_coordinator = group_coordinator  # fixed before start
        self._clock = clock  # fixed before start
        self._timeout_ms = timeout_ms  # fixed before start

    def write(self, orders: Iterable[Order]) -> None:
        """Append markers; each order is answered with the errors of its partitions."""
        moved: set[TopicPartition] = set()
        for marker, partitions, reply in orders:
            gathering: Gathering[TopicPartition, ErrorCode] = Gathering(len(partitions), reply)
            for tp in partitions:
                self._write_one(marker, tp, partial(gathering.add, tp), moved)
        self._replica_manager.complete_all_delayed(moved)

    def _write_one(
        self, marker: Marker, tp: TopicPartition, done: Completion[ErrorCode], moved: set[TopicPartition]
    ) -> None:
        if tp.topic == GROUP_METADATA_TOPIC:
            self._group_coordinator.end_transaction(
                tp,
                marker,
                lambda error: done(ErrorCode.NOT_LEADER_OR_FOLLOWER if error in GROUP_COORDINATOR_AWAY else error),
            )
            return

        def on_done(error: ErrorCode, _first_offset: int) -> None:
            done(error)

        try:
            self._replica_manager.append_internal(
                tp, marker.batch(self._clock.wall_ms()), self._timeout_ms, on_done, moved=moved,
                transaction_version=marker.transaction_version,
            )  # fmt: skip
        except ApiError as error:
            done(error.code)


@dataclass(slots=True)
class MarkerBatch:
    """The markers of one transaction for the partitions of one leader."""

    completion: PendingCompletion
    partitions: list[TopicPartition]
    misses: dict[TopicPartition, int] = field(default_factory=dict)  # how often each was missing from the metadata


class MarkerSender:
    """Sends markers to the leaders of their partitions."""

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
        self.senders: BrokerSenders[MarkerBatch] = BrokerSenders(
            "TxnMarkerSenderThread", "txn-marker", broker_id, clock,
            node_of=lambda id_: metadata_cache.snapshot.node(id_, listener_name), carry=self._carry,
            request_timeout_ms=request_timeout_ms, connect=connect,
        )  # fmt: skip

    def shutdown(self) -> None:
        """End the threads."""
        self.senders.shutdown()

    def unknown_destinations(self) -> int:
        """Return the number of batches for partitions without a known leader, for metrics."""
        return self.senders.queue_size(NO_LEADER_DESTINATION)

    def send(self, completion: PendingCompletion, partitions: Collection[TopicPartition]) -> None:
        """Have the markers written, and report to the completion's shard."""
        self._dispatch(completion, partitions, {})

    def _dispatch(
        self, completion: PendingCompletion, partitions: Iterable[TopicPartition], misses: Mapping[TopicPartition, int]
    ) -> None:
        """Group the partitions by their current leader, and queue the batches."""
        snapshot = self._metadata_cache.snapshot
        by_leader: dict[int, MarkerBatch] = {}
        deleted: list[TopicPartition] = []
        for tp in partitions:
            info = snapshot.partition(tp)
            missed = misses.get(tp, 0) + 1 if info is None else 0
            if missed >= MISSES_UNTIL_DELETED:
                deleted.append(tp)
                continue
            leader = NO_LEADER_DESTINATION
            if info is not None and snapshot.node(info.leader, self._listener_name) is not None:
                leader = info.leader
            batch = by_leader.setdefault(leader, MarkerBatch(completion, []))
            batch.partitions.append(tp)
            if missed:
                batch.misses[tp] = missed
        for leader, batch in by_leader.items():
            self.senders.send(leader, batch)
        if deleted:
            log.info("%s of %s need no markers any more: they were deleted", deleted, completion.transactional_id)
            completion.shard.marked(completion, deleted)

    # On a sender's thread

    def _carry(self, destination: int, connection: NodeConnection | None, items: list[MarkerBatch]) -> None:
        wanted = [item for item in items if item.completion.shard.is_wanted(item.completion)]
        if not wanted:
            return
        if destination == self._broker_id:
            self._writer.write(
                [(_marker(item.completion), item.partitions, partial(self._take_result, item)) for item in wanted]
            )
        elif connection is None:
            self._retry(wanted)
        else:
            self._send_request(connection, wanted)

    def _send_request(self, connection: NodeConnection, items: list[MarkerBatch]) -> None:
        request = WriteTxnMarkersRequest(markers=[_wire_marker(item) for item in items])
        try:
            response = connection.send(request, REQUEST_VERSION)
        except NodeConnectionError as error:
            log.info("markers could not be sent: %s", error)
            self._retry(items)
            return
        by_producer = _errors_by_producer(response)
        for item in items:
            errors = by_producer.get(item.completion.producer_id, {})
            # Why the default: a partition without an answer may lack its marker; writing one twice does no harm.
            self._take_result(
                item, {tp: errors.get(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for tp in item.partitions}
            )

    def _retry(self, items: Sequence[MarkerBatch]) -> None:
        """Retry after a pause, at the leaders of that time."""
        self.senders.is_stopping.wait(RETRY_MS / 1000)
        for item in items:
            self._dispatch(item.completion, item.partitions, item.misses)

    def _take_result(self, item: MarkerBatch, errors: Errors) -> None:
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
            # Why this destination: its thread has nothing else to do, so it can make the pause before the retry.
            self.senders.send(NO_LEADER_DESTINATION, MarkerBatch(completion, list(failed)))


def _marker(completion: PendingCompletion) -> Marker:
    return Marker(
        completion.producer_id, completion.producer_epoch, completion.is_commit, completion.coordinator_epoch,
        completion.transaction_version,
    )  # fmt: skip


def _wire_marker(item: MarkerBatch) -> WritableTxnMarker:
    marker = _marker(item.completion)
    by_topic = partitions_by_topic(item.partitions)
    return WritableTxnMarker(
        producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=ids) for name, ids in by_topic.items()],
        coordinator_epoch=marker.coordinator_epoch, transaction_version=marker.transaction_version,
    )  # fmt: skip


def _errors_by_producer(response: WriteTxnMarkersResponse) -> dict[int, Errors]:
    errors: dict[int, Errors] = {}
    for marker in response.markers:
        of_producer = errors.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                of_producer[tp] = ErrorCode.of(partition.error_code)
    return errors
