"""The state of a partition that is being fetched, and decisions about it. Pure: no socket, no thread.

States of a partition
    starts --a log without epochs--> truncated to its high watermark, FETCHING
    FETCHING --error--> DELAYED (until a time) --time up--> FETCHING
    FETCHING --"not the leader, yet"--> DELAYED, briefly at first
    FETCHING --diverging epoch--> truncated, FETCHING again
    FETCHING --fenced, disk failure--> removed (a newer push adds it again)

Source: Kafka's AbstractFetcherThread, PartitionFetchState, OffsetTruncationState (4.3); FetchSessionHandler for
sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.role import EpochEnd
from barnabas.broker.storage.log.log_types import NO_EPOCH, NO_OFFSET
from barnabas.common.topic_partition import TopicPartition

INVALID_SESSION_ID = 0
INITIAL_SESSION_EPOCH = 0
FIRST_PAUSE_MS = 10


class FetchState:
    """The position and delay of a partition that is being fetched. A value: never changed.

    `delayed_until_ms` is on the monotonic clock, 0 = not delayed. `refusals` counts consecutive answers of a leader
    that does not know of its leadership yet.
    """

    __slots__ = ("delayed_until_ms", "fetch_offset", "last_fetched_epoch", "leader_epoch", "partition", "refusals")

    def __init__(
        self,
        partition: Partition,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
        delayed_until_ms: int = 0,
        refusals: int = 0,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.delayed_until_ms = delayed_until_ms
        self.refusals = refusals

    def is_ready(self, now_ms: int) -> bool:
        """Whether it may be fetched now."""
        return now_ms >= self.delayed_until_ms

    def at(self, fetch_offset: int, last_fetched_epoch: int) -> FetchState:
        """The state after an answer of the leader: at this position, ready, and not refused."""
        return FetchState(self.partition, self.leader_epoch, fetch_offset, last_fetched_epoch)

    def delayed(self, until_ms: int) -> FetchState:
        """The state of a partition that waits."""
        return self._waiting(until_ms, self.refusals)

    def refused(self, until_ms: int) -> FetchState:
        """The state of a partition that waits since its leader has refused it once more."""
        return self._waiting(until_ms, self.refusals + 1)

    def _waiting(self, until_ms: int, refusals: int) -> FetchState:
        return FetchState(
            self.partition, self.leader_epoch, self.fetch_offset, self.last_fetched_epoch, until_ms, refusals
        )


def initial_state(partition: Partition) -> FetchState:
    """The state of a partition that starts to follow: it continues at its log's end.

    A log without epochs continues at its high watermark, since a leader could compare nothing with its own. What lies
    above must go first (`is_overlong`).
    """
    log = partition.log
    assert log is not None, "a follower has a log"
    epoch = log.latest_epoch
    offset = log.log_end_offset if epoch != NO_EPOCH else log.high_watermark
    return FetchState(partition, partition.leader_epoch, offset, epoch)


def is_overlong(state: FetchState) -> bool:
    """Whether the log of a partition that starts to follow has no epochs, and records beyond where it continues."""
    log = state.partition.log
    return log is not None and log.latest_epoch == NO_EPOCH and log.log_end_offset > state.fetch_offset


def refusal_pause_ms(refusals: int, backoff_max_ms: int) -> int:
    """How long to wait for a leader that has refused `refusals` fetches in a row: twice as long each time.

    Why not the whole backoff, as Kafka waits: after an election, brokers learn the result within milliseconds of each
    other, and a producer with acks=all waits for the followers.
    """
    return min(backoff_max_ms, FIRST_PAUSE_MS << min(refusals, 10))


def truncation_offset(leader: EpochEnd, *, own: EpochEnd, log_end_offset: int, high_watermark: int) -> int:
    """The offset from which a diverging follower drops its records.

    `leader`: the leader's greatest epoch not above the follower's, and the end of that epoch on the leader. `own`: the
    follower's greatest epoch not above that one, and its end on the follower. If the follower lacks the leader's epoch,
    the end of its older epoch counts; the next answer may diverge again, at a lower offset.
    """
    if leader.end_offset == NO_OFFSET:
        return high_watermark
    if leader.leader_epoch == NO_EPOCH or own.end_offset == NO_OFFSET:
        return min(leader.end_offset, log_end_offset)
    return min(leader.end_offset, own.end_offset, log_end_offset)


class Wanted:
    """The request for one partition. A value: never changed."""

    __slots__ = ("fetch_offset", "last_fetched_epoch", "leader_epoch", "log_start_offset", "topic_id")

    def __init__(
        self, topic_id: bytes, fetch_offset: int, log_start_offset: int, leader_epoch: int, last_fetched_epoch: int
    ) -> None:
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_epoch = leader_epoch
        self.last_fetched_epoch = last_fetched_epoch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wanted) and (
            self.fetch_offset == other.fetch_offset
            and self.log_start_offset == other.log_start_offset
            and self.leader_epoch == other.leader_epoch
            and self.last_fetched_epoch == other.last_fetched_epoch
            and self.topic_id == other.topic_id
        )

    def __hash__(self) -> int:
        return hash((self.topic_id, self.fetch_offset))


class Build(NamedTuple):
    """The part of a request that concerns the session: its id and epoch, and the partitions to name."""

    session_id: int
    session_epoch: int
    changed: dict[TopicPartition, Wanted]
    forgotten: dict[TopicPartition, bytes]


class ClientSession:
    """The fetcher's side of a fetch session (KIP-227). Owner: the fetcher's thread."""

    def __init__(self) -> None:
        self._id = INVALID_SESSION_ID
        self._epoch = INITIAL_SESSION_EPOCH
        self._sent: dict[TopicPartition, Wanted] = {}  # the session as the leader knows it

    def build(self, wanted: dict[TopicPartition, Wanted]) -> Build:
        """The changes since the last request; all partitions at the start of one. `wanted` is kept, not copied."""
        if self._epoch == INITIAL_SESSION_EPOCH:
            self._sent = wanted
            return Build(self._id, self._epoch, wanted, {})
        sent = self._sent
        changed = {tp: item for tp, item in wanted.items() if sent.get(tp) != item}
        # Why those with another topic id too: they are other partitions of the session.
        forgotten = {
            tp: item.topic_id for tp, item in sent.items() if tp not in wanted or wanted[tp].topic_id != item.topic_id
        }
        self._sent = wanted
        return Build(self._id, self._epoch, changed, forgotten)

    def build_changes(self, wanted: dict[TopicPartition, Wanted], gone: Iterable[TopicPartition]) -> Build:
        """The same for a session that goes on: those of `wanted` that changed, and `gone`; the rest stays as it is."""
        sent = self._sent
        changed: dict[TopicPartition, Wanted] = {}
        forgotten: dict[TopicPartition, bytes] = {}
        for tp, item in wanted.items():
            before = sent.get(tp)
            if before == item:
                continue
            if before is not None and before.topic_id != item.topic_id:
                forgotten[tp] = before.topic_id
            changed[tp] = sent[tp] = item
        for tp in gone:
            before = sent.pop(tp, None)
            if before is not None:
                forgotten[tp] = before.topic_id
        return Build(self._id, self._epoch, changed, forgotten)

    @property
    def is_new(self) -> bool:
        """Whether the next request names every partition."""
        return self._epoch == INITIAL_SESSION_EPOCH

    def log_start_told(self, tp: TopicPartition) -> int | None:
        """The start of the follower's log as the leader knows it; None if it knows none."""
        told = self._sent.get(tp)
        return None if told is None else told.log_start_offset

    def accepted(self, session_id: int) -> None:
        """Take note of a response without an error: the session continues, or the leader keeps none (id 0)."""
        self._id = session_id
        self._epoch = INITIAL_SESSION_EPOCH if session_id == INVALID_SESSION_ID else self._epoch + 1

    def reset(self, *, keep_id: bool = False) -> None:
        """Start a new session: after a failure, or when the leader does not know this one.

        `keep_id` makes the leader close the old session first.
        """
        if not keep_id:
            self._id = INVALID_SESSION_ID
        self._epoch = INITIAL_SESSION_EPOCH
        self._sent = {}


def soonest_ms(states: Iterable[FetchState]) -> int:
    """When the next delayed partition is ready; 0 if there is none."""
    return min((state.delayed_until_ms for state in states), default=0)
