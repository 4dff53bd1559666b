"""LagExporter: consumer lag of the whole cluster, on the /metrics page of one broker.

It does the work of kafka_exporter, which is a separate process: it asks every broker for its groups, with their
committed offsets and members, and for the offsets of the partitions that it leads. The live broker with the lowest id
shows the results for the cluster. The others show none, so that a sum over brokers counts everything once.

Rules
1. The thread asks brokers only while the page is in use: scraped within the last `WATCHED_MS`. It asks every
   `REFRESH_MS` at most. A scrape never waits: it shows the last results (`barnabas_lag_age_seconds` is their age).
2. If a broker does not answer, only its own groups and partitions are missing.

Threads: `lag-exporter` asks and replaces `_found` whole; the scraper reads it.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.monitoring.consumer_lag import GroupLags, OffsetHistory, group_lags, next_histories
from barnabas.broker.storage.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.table import catalogue as c
from barnabas.protocol.messages import k02_list_offsets as offsets_wire
from barnabas.protocol.messages import k09_offset_fetch as commits_wire
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache, MetadataSnapshot, Node, PartitionInfo
    from barnabas.common.clock import Clock
    from barnabas.metrics.registry import Labels, Registry

log = logging.getLogger("barnabas.lag")

REFRESH_MS: Final = 5_000
WATCHED_MS: Final = 120_000
ANSWER_TIMEOUT_MS: Final = 5_000
CONSUMER_ID: Final = -1
LIST_OFFSETS_VERSION: Final = 7
OFFSET_FETCH_VERSION: Final = 8
PARTITION_ROWS: Final = (
    c.PARTITION_LEADER,
    c.PARTITION_LEADER_IS_PREFERRED,
    c.PARTITION_REPLICAS,
    c.PARTITION_IN_SYNC_REPLICA,
    c.PARTITION_UNDER_REPLICATED,
)
POSITION_ROWS: Final = (c.GROUP_CURRENT_OFFSET, c.GROUP_LAG, c.GROUP_UNCOMMITTED_OFFSETS, c.GROUP_LAG_MILLIS)
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


@dataclass(slots=True)
class Found:
    """The answers of the brokers, and the lags computed from them."""

    newest: dict[TopicPartition, int] = field(default_factory=dict)
    oldest: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    lags: GroupLags = field(default_factory=GroupLags)
    at_ms: int = 0  # wall time


class LagExporter:
    """See the module."""

    def __init__(
        self,
        registry: Registry,
        cache: MetadataCache,
        clock: Clock,
        broker_id: int,
        listener_name: str,
        connect: Connect = NodeConnection,
    ) -> None:
        self._cache = cache  # fixed before start
        self._clock = clock  # fixed before start
        self._broker_id = broker_id  # fixed before start
        self._connect = connect  # fixed before start
        self._listener_name = listener_name  # fixed before start; of the brokers' connections to each other
        self._found: Found | None = None  # replaced whole by the thread; None while another broker exports
        self._histories: dict[TopicPartition, OffsetHistory] = {}  # owner: the thread
        self._connections: dict[Node, NodeConnection] = {}  # owner: the thread; shutdown aborts them
        self._watched_ms: int | None = None  # set by the scraper; monotonic
        self._condition = threading.Condition()
        self._is_stopping = False  # guarded by: _condition
        self._is_watched = False  # guarded by: _condition; scraped since the thread last looked
        self._thread = ServiceThread("lag-exporter", "lag-exporter", self._run, daemon=True)
        self._register(registry)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shutdown(self) -> None:
        """End the thread."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        for connection in list(self._connections.values()):
            connection.abort()
        if self._thread.is_alive():
            self._thread.join()

    # The page

    def _register(self, registry: Registry) -> None:
        registry.before_scrape(self._note_scrape)
        registry.table((c.BROKERS,), lambda: [((), (len(self._cache.snapshot.brokers),))] if self.is_exporter() else [])
        registry.table((c.BROKER_INFO,), self._broker_lines)
        registry.table((c.TOPIC_PARTITIONS,), self._topic_lines)
        registry.table(PARTITION_ROWS, self._partition_lines)
        registry.table((c.PARTITION_CURRENT_OFFSET,), lambda: self._offset_lines("newest"))
        registry.table((c.PARTITION_OLDEST_OFFSET,), lambda: self._offset_lines("oldest"))
        registry.table(POSITION_ROWS, lambda: self._lags().positions.items())
        registry.table((c.GROUP_CURRENT_OFFSET_SUM, c.GROUP_LAG_SUM), lambda: self._lags().topics.items())
        registry.table((c.GROUP_MEMBERS,), lambda: self._lags().members.items())
        registry.table((c.LAG_AGE_SECONDS,), self._age_line)

    def is_exporter(self) -> bool:
        """Whether this broker exports the lags: it is the live one with the lowest id."""
        return min(self._cache.snapshot.brokers, default=None) == self._broker_id

    def _note_scrape(self) -> None:
        with self._condition:
            self._is_watched = True
            self._condition.notify_all()

    def _lags(self) -> GroupLags:
        found = self._found
        return GroupLags() if found is None or not self.is_exporter() else found.lags

    def _age_line(self) -> list[tuple[Labels, tuple[float]]]:
        found = self._found
        if found is None or not self.is_exporter():
            return []
        return [((), ((self._clock.wall_ms() - found.at_ms) / 1000,))]

    def _broker_lines(self) -> list[tuple[Labels, tuple[int]]]:
        if not self.is_exporter():
            return []
        nodes = self._cache.snapshot.nodes(self._listener_name)
        return [((str(node.id), f"{node.host}:{node.port}"), (1,)) for node in nodes]

    def _topic_lines(self) -> list[tuple[Labels, tuple[int]]]:
        if not self.is_exporter():
            return []
        return [((name,), (len(topic.partitions),)) for name, topic in self._cache.snapshot.topics.items()]

    def _partition_lines(self) -> list[tuple[Labels, tuple[int, ...]]]:
        if not self.is_exporter():
            return []
        return [
            ((name, str(info.partition)), _state(info))
            for name, topic in self._cache.snapshot.topics.items()
            for info in topic.partitions.values()
        ]

    def _offset_lines(self, which: str) -> list[tuple[Labels, tuple[int]]]:
        found = self._found
        if found is None or not self.is_exporter():
            return []
        offsets: dict[TopicPartition, int] = getattr(found, which)
        return [((tp.topic, str(tp.partition)), (offset,)) for tp, offset in offsets.items()]

    # The thread

    def _run(self) -> None:
        pause_s = 0.0
        while self._wait(pause_s):
            pause_s = REFRESH_MS / 1000
            if self.is_exporter():
                self._found = self.look()
            else:
                self._found = None
                self._histories = {}
        for connection in self._connections.values():
            connection.close()

    def _wait(self, pause_s: float) -> bool:
        """Wait until it is time to ask, and the page is in use (rule 1); return False once stopped."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_stopping, pause_s)
            self._condition.wait_for(self._is_wanted)
            return not self._is_stopping

    def _is_wanted(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._is_watched:
            self._is_watched = False
            self._watched_ms = now_ms
        return self._is_stopping or (self._watched_ms is not None and now_ms - self._watched_ms < WATCHED_MS)

    def look(self) -> Found:
        """Ask all brokers once; return their answers and the lags."""
        snapshot, found = self._cache.snapshot, Found()
        for node in snapshot.nodes(self._listener_name):
            try:
                self._ask(self._connected(node), node, snapshot, found)
            except NodeConnectionError as error:  # rule 2
                log.debug("lag: %s", error)
        now_ms = self._clock.wall_ms()
        read = {tp for positions in found.committed.values() for tp in positions}
        self._histories = next_histories(self._histories, read, found.newest, now_ms)
        found.lags = group_lags(found.committed, found.newest, self._histories, found.members, now_ms)
        found.at_ms = now_ms
        return found

    def _connected(self, node: Node) -> NodeConnection:
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._connect(
                node.host,
                node.port,
                timeout_ms=ANSWER_TIMEOUT_MS,
                client_id=f"broker-{self._broker_id}-lag-exporter",
                clock=self._clock,
            )
        return connection

    def _ask(self, node: NodeConnection, which: Node, snapshot: MetadataSnapshot, found: Found) -> None:
        led = [
            TopicPartition(name, info.partition)
            for name, topic in snapshot.topics.items()
            for info in topic.partitions.values()
            if info.leader == which.id
        ]
        if led:
            found.newest.update(_offsets(node, led, LATEST_TIMESTAMP))
            found.oldest.update(_offsets(node, led, EARLIEST_TIMESTAMP))
        listed = node.send(ListGroupsRequest(), 5)
        groups = {group.group_id: group.group_type.lower() for group in listed.groups}
        if not groups:
            return
        found.committed.update(_committed(node, groups))
        found.members.update(_members(node, groups))


def _state(info: PartitionInfo) -> tuple[int, ...]:
    replicas, isr = len(info.replicas), len(info.isr)
    return info.leader, int(info.leader in info.replicas[:1]), replicas, isr, int(isr < replicas)


def _offsets(
    node: NodeConnection, tps: Iterable[TopicPartition], timestamp: int
) -> Iterator[tuple[TopicPartition, int]]:
    topics: defaultdict[str, list[Any]] = defaultdict(list)
    for tp in tps:
        topics[tp.topic].append(offsets_wire.ListOffsetsPartition(partition_index=tp.partition, timestamp=timestamp))
    request = offsets_wire.ListOffsetsRequest(
        replica_id=CONSUMER_ID,
        topics=[offsets_wire.ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    for topic in node.send(request, LIST_OFFSETS_VERSION).topics:
        for part in topic.partitions:
            if not part.error_code and part.offset >= 0:
                yield TopicPartition(topic.name, part.partition_index), part.offset


def _committed(node: NodeConnection, groups: Iterable[str]) -> Iterator[tuple[str, dict[TopicPartition, int]]]:
    request = commits_wire.OffsetFetchRequest(
        groups=[commits_wire.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    )
    for group in node.send(request, OFFSET_FETCH_VERSION).groups:
        if not group.error_code:
            yield (
                group.group_id,
                {
                    TopicPartition(topic.name, part.partition_index): part.committed_offset
                    for topic in group.topics
                    for part in topic.partitions
                    if not part.error_code and part.committed_offset >= 0
                },
            )


def _members(node: NodeConnection, groups: dict[str, str]) -> Iterator[tuple[str, int]]:
    classic = [group for group, kind in groups.items() if kind in ("", CLASSIC)]
    modern = [group for group, kind in groups.items() if kind == CONSUMER]
    described: list[Any] = []
    if classic:
        described += node.send(DescribeGroupsRequest(groups=classic), 5).groups
    if modern:
        described += node.send(ConsumerGroupDescribeRequest(group_ids=modern), 0).groups
    for group in described:
        if not group.error_code:
            yield group.group_id, len(group.members)
