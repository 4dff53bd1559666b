"""ReplicaFetcher: the thread that copies from one leader broker.

Each turn fetches the partitions that are ready. For each partition of the response it appends, truncates or waits.

Rules
1. Records are appended only under the leader epoch that they were fetched with (`Partition.append_as_follower` checks
   it under its lock). `forget` therefore need not wait for the thread.
2. The fetcher decides no ISR and no high watermark: it takes over the leader's.
3. A follower truncates where its epochs and the leader's diverge (KIP-595), never by its own high watermark alone. Only
   a log without epochs (it has nothing but messages of format v0 and v1) is cut to its high watermark, as Kafka does.

Threads: `ReplicaFetcherThread-<index>-<leader>` runs; others add and remove partitions under `_lock`.
Source: Kafka's AbstractFetcherThread, ReplicaFetcherThread, RemoteLeaderEndPoint (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.broker.replication.fetching.fetch_state import (
    FetchState,
    Wanted,
    initial_state,
    is_overlong,
    refusal_pause_ms,
    soonest_ms,
    truncation_offset,
)
from barnabas.broker.replication.fetching.turns import Turns
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.role import EpochEnd
from barnabas.broker.storage.log.log import UnexpectedAppendOffsetError
from barnabas.broker.storage.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.meters import Meter
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k01_fetch as wire
from barnabas.protocol.messages import k02_list_offsets as offsets_wire

if TYPE_CHECKING:
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.protocol.schema import Message

log = logging.getLogger("barnabas.replication.fetcher")

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 7
_NONE: Final = ErrorCode.NONE  # Why: saves a lookup for every partition of every response
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
# Errors of a leader that does not know of its election, or of the topic, yet.
NOT_YET_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)

Address = Callable[[], "tuple[str, int] | None"]


class LeaderConnection(Protocol):
    """The part of `NodeConnection` that a fetcher uses."""

    def send(self, message: Message, version: int) -> Any:
        """Send a request and return its response; raises NodeConnectionError."""

    def abort(self) -> None:
        """Make the using thread's calls fail."""

    def close(self) -> None:
        """Close the socket; the next send connects again."""


class ReplicaFetcher:
    """Copies partitions from the broker `leader_id`; see the module."""

    def __init__(
        self,
        leader_id: int,
        index: int,
        manager: ReplicaManager,
        address: Address,
        broker_epoch: Callable[[], int],
        connect: Connect = NodeConnection,
    ) -> None:
        # Fixed before start.
        self.leader_id = leader_id
        self.index = index
        self._manager = manager
        self._config = manager.config
        self._clock = manager.clock
        self._quota = manager.quotas.follower
        self._address = address
        self._broker_epoch = broker_epoch
        self._connect = connect
        # Owner: the fetcher's thread; shutdown may abort the connection.
        self._connection: LeaderConnection | None = None
        self._turns = Turns()
        # Guarded by: _lock.
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._states: dict[TopicPartition, FetchState] = {}
        self._touched: dict[TopicPartition, None] = {}  # whose state may differ from what the leader was told
        self._overlong: dict[TopicPartition, None] = {}  # whose log reaches beyond where fetching continues
        self._is_stopping = False
        self.fetches = Meter(manager.registry.now_s())  # marked by the fetcher's thread
        self.bytes_in = Meter(manager.registry.now_s())  # likewise
        self.failed: set[TopicPartition] = set()  # guarded by: _lock; not fetched until they are added again
        self.lags: dict[TopicPartition, int] = {}  # owner: the fetcher's thread; records behind the leader's watermark
        self._service = ServiceThread(
            f"ReplicaFetcherThread-{index}-{leader_id}", f"fetch-{index}-{leader_id}", self._run
        )

    def start(self) -> None:
        """Start the thread."""
        self._service.start()

    def add(self, partitions: Iterable[Partition]) -> None:
        """Fetch these partitions as well, each from its log's end."""
        states = {partition.tp: initial_state(partition) for partition in partitions}
        with self._lock:
            self.failed -= states.keys()
            self._states.update(states)
            self._touched.update(dict.fromkeys(states))
            self._overlong.update({tp: None for tp, state in states.items() if is_overlong(state)})
            self._condition.notify_all()

    def remove(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions."""
        with self._lock:
            for tp in tps:
                self._states.pop(tp, None)
                self._touched[tp] = None
                self.lags.pop(tp, None)
                self.failed.discard(tp)

    def is_dead(self) -> bool:
        """Whether the thread ended without a shutdown."""
        return not self._is_stopping and self._service.ident is not None and not self._service.is_alive()

    def take_all(self) -> list[Partition]:
        """Stop fetching every partition; returns them."""
        with self._lock:
            partitions = [state.partition for state in self._states.values()]
            self._touched.update(dict.fromkeys(self._states))
            self._states = {}
            self.lags.clear()
        return partitions

    def is_idle(self) -> bool:
        """Whether there is nothing to fetch."""
        return not self._states

    def partition_count(self) -> int:
        """How many partitions it fetches."""
        return len(self._states)

    def max_lag(self) -> int:
        """How many records the slowest partition lags behind its leader's high watermark."""
        return max(list(self.lags.values()), default=0)

    def begin_shutdown(self) -> None:
        """Make the thread end; `join` waits for it."""
        with self._lock:
            self._is_stopping = True
            self._condition.notify_all()
        connection = self._connection
        if connection is not None:
            connection.abort()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._service.is_alive() and threading.current_thread() is not self._service:
            self._service.join()

    # The fetcher's thread

    def _run(self) -> None:
        while not self._is_stopping:
            ready = self._wait_for_work()
            if not ready:
                continue
            try:
                self._fetch(ready)
                if self._config.barnabas_slow_motion_fetcher_ms:
                    self._pause(self._config.barnabas_slow_motion_fetcher_ms)
            except NodeConnectionError as error:
                if not self._is_stopping:
                    log.info("cannot fetch from broker %d: %s", self.leader_id, error)
                self._disconnect()
                self._pause(self._config.replica_fetch_backoff_ms)
        self._disconnect()

    def _wait_for_work(self) -> dict[TopicPartition, FetchState]:
        """Return the partitions to fetch. If there are none, wait first, for some or for their time."""
        turns = self._turns
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            turns.prepare(self._states, self._touched, now_ms, self._hold_back if self._quota.has_throttled else None)
            if not turns.asked and not self._is_stopping:
                wait_ms = soonest_ms(self._states.values()) - now_ms if self._states else 1000
                if turns.has_held_back:
                    wait_ms = self._config.replica_fetch_backoff_ms
                self._condition.wait(max(1, wait_ms) / 1000)
            return turns.asked

    def _hold_back(self, ready: dict[TopicPartition, FetchState]) -> bool:
        """Remove throttled partitions, never those in sync; returns whether there were any."""
        held_back = [tp for tp in ready if self.lags.get(tp, 1) > 0 and self._quota.holds_back(tp)]
        for tp in held_back:
            del ready[tp]
        return bool(held_back)

    def _pause(self, pause_ms: int) -> None:
        with self._lock:
            if not self._is_stopping:
                self._condition.wait(pause_ms / 1000)

    def _fetch(self, ready: dict[TopicPartition, FetchState]) -> None:
        if self._overlong:
            self._cut_overlong()
        build = self._turns.build(_wanted)
        config = self._config
        request = wire.FetchRequest(
            replica_state=wire.ReplicaState(replica_id=self._manager.broker_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=build.session_id,
            session_epoch=build.session_epoch,
            topics=self._topics(build.changed),
            forgotten_topics_data=_forgotten(build.forgotten),
        )
        response = self._send(request, FETCH_VERSION)
        self.fetches.mark()
        if response.error_code != 0:
            error = ErrorCode.of(response.error_code)
            log.info("fetch from broker %d refused: %s", self.leader_id, error.name)
            self._turns.session.reset(keep_id=error == ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            if error not in SESSION_ERRORS:
                self._pause(config.replica_fetch_backoff_ms)
            return
        self._turns.session.accepted(response.session_id)
        for topic in response.responses:
            tps = self._turns.tps.get(topic.topic_id)
            if tps is None:
                continue
            for data in topic.partitions:
                tp = tps.get(data.partition_index)
                fetched = None if tp is None else ready.get(tp)
                if tp is not None and fetched is not None:
                    self._handle(tp, fetched, data)

    def _cut_overlong(self) -> None:
        """Drop the records above the high watermark of logs without epochs, before anything is appended to them."""
        with self._lock:
            states = [state for tp in self._overlong if (state := self._states.get(tp)) is not None]
            self._overlong.clear()
        for state in states:
            partition = state.partition
            held = partition.log
            assert held is not None, "a follower has a log"
            # Why the greater: a former leader's last answer may have moved the high watermark meanwhile.
            offset = max(state.fetch_offset, held.high_watermark)
            log.info("truncating %s to its high watermark %d: it has no leader epochs", partition.tp, offset)
            try:
                partition.truncate_to(offset, leader_epoch=state.leader_epoch)
            except ApiError as problem:
                self._give_up(partition.tp, state, str(problem))
            self._manager.complete_delayed(partition.tp)

    def _handle(self, tp: TopicPartition, fetched: FetchState, data: wire.PartitionData) -> None:
        """Act on one partition's response, unless the partition was moved or forgotten meanwhile."""
        if self._states.get(tp) is not fetched:
            self._dropped(tp, fetched)
            return
        error = _NONE if data.error_code == 0 else ErrorCode.of(data.error_code)
        try:
            if error is _NONE:
                following = self._apply(fetched, data)
            elif error == ErrorCode.OFFSET_OUT_OF_RANGE:
                following = self._restart(fetched)
            elif error == ErrorCode.FENCED_LEADER_EPOCH:
                self._give_up(tp, fetched, "its leader epoch is outdated; the next push brings the new one")
                return
            elif error in NOT_YET_ERRORS:
                log.debug("broker %d does not lead %s yet: %s", self.leader_id, tp, error.name)
                following = self._refused(fetched)
            else:
                log.info("fetch of %s from broker %d failed: %s", tp, self.leader_id, error.name)
                following = self._delayed(fetched)
        except UnexpectedAppendOffsetError as gap:
            log.warning("%s", gap)
            following = self._begun_again(tp, fetched)
        except ApiError as problem:
            if problem.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._give_up(tp, fetched, str(problem))
                return
            log.warning("records from broker %d for %s are refused: %s", self.leader_id, tp, problem)
            following = self._delayed(fetched)
        if following is not fetched:
            self._replace(tp, fetched, following)

    def _replace(self, tp: TopicPartition, fetched: FetchState, following: FetchState) -> None:
        """Take over the state after an answer, of which the next request tells the leader."""
        with self._lock:
            if self._states.get(tp) is fetched:
                self._states[tp] = following
                self._touched[tp] = None

    def _begun_again(self, tp: TopicPartition, fetched: FetchState) -> FetchState:
        """Return the state after an answer that does not continue the log: as at first, and delayed."""
        following = self._delayed(initial_state(fetched.partition))
        if is_overlong(following):
            with self._lock:
                self._overlong[tp] = None
        return following

    def _dropped(self, tp: TopicPartition, fetched: FetchState) -> None:
        """Begin a new session if the leader would not send what was dropped again: it counts it as taken over."""
        present = self._states.get(tp)
        if present is not None and present.leader_epoch == fetched.leader_epoch:
            self._turns.session.reset(keep_id=True)

    def _apply(self, fetched: FetchState, data: wire.PartitionData) -> FetchState:
        """Append the records, or truncate where the logs diverge.

        Returns `fetched` itself if the next request would tell the leader nothing new.
        """
        partition = fetched.partition
        diverging = data.diverging_epoch
        if diverging.epoch != NO_EPOCH or diverging.end_offset != -1:
            return self._truncate(fetched, EpochEnd(diverging.epoch, diverging.end_offset))
        following = fetched.at(fetched.fetch_offset, fetched.last_fetched_epoch) if fetched.refusals else fetched
        records = data.records
        if records:
            info = partition.append_as_follower(records, leader_epoch=fetched.leader_epoch)
            if info is None:
                return fetched
            if info.last_offset >= fetched.fetch_offset:
                following = fetched.at(info.last_offset + 1, info.leader_epoch)
                self._manager.stats.replication_bytes_in(info.size_in_bytes)
                self.bytes_in.mark(info.size_in_bytes)
                if partition.role.is_reassigning:
                    self._manager.stats.reassignment_bytes_in(info.size_in_bytes)
                self._quota.record(partition.tp, info.size_in_bytes)
        high_watermark = data.high_watermark
        self.lags[partition.tp] = max(0, high_watermark - following.fetch_offset)
        if partition.update_follower_watermarks(high_watermark, data.log_start_offset):
            self._manager.complete_delayed(partition.tp)
        if partition.log_start_offset != self._turns.session.log_start_told(partition.tp):  # it waits to hear of it
            return following.at(following.fetch_offset, following.last_fetched_epoch)
        return following

    def _truncate(self, fetched: FetchState, leader: EpochEnd) -> FetchState:
        partition = fetched.partition
        held = partition.log
        assert held is not None, "a follower has a log"
        own = EpochEnd(*held.end_offset_for_epoch(leader.leader_epoch))
        offset = truncation_offset(
            leader, own=own, log_end_offset=held.log_end_offset, high_watermark=held.high_watermark
        )
        log.info(
            "truncating %s to %d: it diverges from its leader in epoch %d", partition.tp, offset, leader.leader_epoch
        )
        partition.truncate_to(offset, leader_epoch=fetched.leader_epoch)
        self._manager.complete_delayed(partition.tp)
        return fetched.at(offset, held.latest_epoch)

    def _restart(self, fetched: FetchState) -> FetchState:
        """Truncate or restart a log whose end is outside the leader's log; returns where to continue."""
        partition = fetched.partition
        held = partition.log
        assert held is not None, "a follower has a log"
        end = self._leader_offset(fetched, LATEST_TIMESTAMP)
        if end is None:
            return self._delayed(fetched)
        if end < held.log_end_offset:
            log.warning("truncating %s to its leader's end %d", partition.tp, end)
            partition.truncate_to(end, leader_epoch=fetched.leader_epoch)
            self._manager.complete_delayed(partition.tp)
            return fetched.at(end, held.latest_epoch)
        start = self._leader_offset(fetched, EARLIEST_TIMESTAMP)
        if start is None:
            return self._delayed(fetched)
        if start > held.log_end_offset:
            log.warning("%s restarts empty at its leader's start %d", partition.tp, start)
            partition.truncate_fully_and_start_at(start, leader_epoch=fetched.leader_epoch)
            self._manager.complete_delayed(partition.tp)
        return fetched.at(max(start, held.log_end_offset), held.latest_epoch)

    def _leader_offset(self, fetched: FetchState, timestamp: int) -> int | None:
        tp = fetched.partition.tp
        request = offsets_wire.ListOffsetsRequest(
            replica_id=self._manager.broker_id,
            topics=[
                offsets_wire.ListOffsetsTopic(
                    name=tp.topic,
                    partitions=[
                        offsets_wire.ListOffsetsPartition(
                            partition_index=tp.partition, current_leader_epoch=fetched.leader_epoch, timestamp=timestamp
                        )
                    ],
                )
            ],
        )
        found = self._send(request, LIST_OFFSETS_VERSION).topics[0].partitions[0]
        return None if found.error_code else int(found.offset)

    def _delayed(self, state: FetchState) -> FetchState:
        return state.delayed(self._clock.monotonic_ms() + self._config.replica_fetch_backoff_ms)

    def _refused(self, state: FetchState) -> FetchState:
        pause_ms = refusal_pause_ms(state.refusals, self._config.replica_fetch_backoff_ms)
        return state.refused(self._clock.monotonic_ms() + pause_ms)

    def _give_up(self, tp: TopicPartition, fetched: FetchState, why: str) -> None:
        """Stop fetching a partition until a newer push adds it again."""
        log.warning("fetching %s ends: %s", tp, why)
        with self._lock:
            if self._states.get(tp) is fetched:
                del self._states[tp]
                self._touched[tp] = None
                self.failed.add(tp)

    def _topics(self, changed: dict[TopicPartition, Wanted]) -> list[wire.FetchTopic]:
        topics: dict[bytes, wire.FetchTopic] = {}
        partition_max_bytes = self._config.replica_fetch_max_bytes
        for tp, item in changed.items():
            topic = topics.get(item.topic_id)
            if topic is None:
                topic = topics[item.topic_id] = wire.FetchTopic(topic=tp.topic, topic_id=item.topic_id, partitions=[])
            topic.partitions.append(
                wire.FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=item.leader_epoch,
                    fetch_offset=item.fetch_offset,
                    last_fetched_epoch=item.last_fetched_epoch,
                    log_start_offset=item.log_start_offset,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        return list(topics.values())

    def _send(self, message: Message, version: int) -> Any:
        connection = self._connection
        if connection is None:
            address = self._address()
            if address is None:
                raise NodeConnectionError(f"no address of broker {self.leader_id} is known")
            connection = self._connection = self._connect(
                *address,
                timeout_ms=self._config.replica_socket_timeout_ms,
                client_id=f"broker-{self._manager.broker_id}-fetcher-0",
                clock=self._clock,
            )
        return connection.send(message, version)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._turns.session.reset()


def _wanted(state: FetchState) -> Wanted:
    held = state.partition.log
    assert held is not None, "a follower has a log"
    return Wanted(
        state.partition.topic_id,
        state.fetch_offset,
        held.log_start_offset,
        state.leader_epoch,
        state.last_fetched_epoch,
    )


def _forgotten(forgotten: dict[TopicPartition, bytes]) -> list[wire.ForgottenTopic]:
    topics: dict[bytes, wire.ForgottenTopic] = {}
    for tp, topic_id in forgotten.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = wire.ForgottenTopic(topic=tp.topic, topic_id=topic_id, partitions=[])
        topic.partitions.append(tp.partition)
    return list(topics.values())
