"""LatestOffsets: the ends of partitions, from their leaders; the lag of a share group is the distance to them.

Partitions that this broker leads are read here. The others are asked for with one ListOffsets for each leader. An
answer that does not come is an error of its partitions: the client asks again.

Threads: any thread asks; `share-group-offsets-<id>-to-<broker>` answers for each other leader; the caller's thread
answers for its own partitions at once.
Source: Kafka's NetworkPartitionMetadataClient (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.channels.broker_senders import BrokerSenders
from barnabas.broker.replication.offset_queries import offset_for_timestamp
from barnabas.broker.replication.reading import visible_end
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.storage.log.log_types import NO_EPOCH, FetchIsolation
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.topic_partition import TopicPartition, partitions_by_topic
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.group")

LATEST: Final = -1
CONSUMER_ID: Final = -1
REQUEST_VERSION: Final = 7


class EndOffset(NamedTuple):
    """The end of a partition (exclusive), as a consumer sees it."""

    error: ErrorCode
    offset: int = -1


Ends = dict[TopicPartition, EndOffset]


@dataclass(slots=True)
class _Question:
    """Partitions of one leader, and who wants to know."""

    partitions: list[TopicPartition]
    answer: Completion[Ends]


class LatestOffsets:
    """See the module."""

    def __init__(
        self,
        *,
        broker_id: int,
        clock: Clock,
        metadata_cache: MetadataCache,
        replica_manager: ReplicaManager,
        listener_name: str,
        request_timeout_ms: int,
        connect: Connect = NodeConnection,
    ) -> None:
        self._broker_id = broker_id  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._replica_manager = replica_manager  # fixed before start
        self._listener_name = listener_name  # fixed before start
        self._senders: BrokerSenders[_Question] = BrokerSenders(
            "share-group-offsets", "share-ends", broker_id, clock,
            node_of=lambda id_: metadata_cache.snapshot.node(id_, listener_name), carry=self._carry,
            request_timeout_ms=request_timeout_ms, connect=connect,
        )  # fmt: skip

    def shutdown(self) -> None:
        """End the threads."""
        self._senders.shutdown()

    def ask(self, partitions: Collection[TopicPartition], reply: Completion[Ends]) -> None:
        """Return the ends of these partitions through `reply`."""
        snapshot = self._metadata_cache.snapshot
        known: Ends = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            info = snapshot.partition(tp)
            if info is None:
                known[tp] = EndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif info.leader == self._broker_id:
                known[tp] = self._read(tp)
            elif snapshot.node(info.leader, self._listener_name) is None:
                known[tp] = EndOffset(ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                by_leader.setdefault(info.leader, []).append(tp)

        def answered(found: dict[int, Ends]) -> None:
            for ends in found.values():
                known.update(ends)
            reply(known)

        gathering: Gathering[int, Ends] = Gathering(len(by_leader), answered)
        for leader, asked in by_leader.items():
            self._senders.send(leader, _Question(asked, partial(gathering.add, leader)))

    def _read(self, tp: TopicPartition) -> EndOffset:
        try:
            found = offset_for_timestamp(
                self._replica_manager.partition(tp),
                LATEST,
                lambda log_: visible_end(log_, FetchIsolation.HIGH_WATERMARK),
                current_leader_epoch=NO_EPOCH,
                leader_only=True,
                is_client=True,
            )
        except ApiError as error:
            return EndOffset(error.code)
        assert found is not None, "the end always exists"
        return EndOffset(ErrorCode.NONE, found.offset)

    # On a sender's thread

    def _carry(self, _destination: int, connection: NodeConnection | None, items: list[_Question]) -> None:
        ends = self._ends(connection, dict.fromkeys(tp for item in items for tp in item.partitions))
        for item in items:
            missing = EndOffset(ErrorCode.UNKNOWN_SERVER_ERROR)
            item.answer({tp: ends.get(tp, missing) for tp in item.partitions})

    def _ends(self, connection: NodeConnection | None, partitions: Collection[TopicPartition]) -> Ends:
        if connection is None:
            return dict.fromkeys(partitions, EndOffset(ErrorCode.LEADER_NOT_AVAILABLE))
        by_topic = partitions_by_topic(partitions)
        topics = [
            ListOffsetsTopic(
                name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in ids]
            )
            for name, ids in by_topic.items()
        ]
        request = ListOffsetsRequest(replica_id=CONSUMER_ID, isolation_level=0, topics=topics)
        try:
            response: ListOffsetsResponse = connection.send(request, REQUEST_VERSION)
        except NodeConnectionError as error:
            log.info("the ends of partitions could not be asked for: %s", error)
            return dict.fromkeys(partitions, EndOffset(ErrorCode.LEADER_NOT_AVAILABLE))
        return {
            TopicPartition(topic.name, p.partition_index): EndOffset(ErrorCode.of(p.error_code), p.offset)
            for topic in response.topics
            for p in topic.partitions
        }
