"""What a replica fetcher knows of each partition, and what it decides of a leader's answer: no socket, no thread.

States of a partition
    FETCHING --error--> DELAYED (until a time) --time up--> FETCHING
    FETCHING --"not the leader, yet"--> DELAYED, shortly at first
    FETCHING --diverging epoch--> truncated, FETCHING again
    FETCHING --fenced, disk failure--> given up (removed; a newer push brings it back)

Source: Kafka's AbstractFetcherThread, PartitionFetchState, OffsetTruncationState (4.3); FetchSessionHandler for
sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.role import EpochEnd
from barnabas.broker.storage.log_types import NO_EPOCH, NO_OFFSET
from barnabas.common.topic_partition import TopicPartition

INVALID_SESSION_ID = 0
INITIAL_SESSION_EPOCH = 0
FIRST_PAUSE_MS = 10


class FetchState(NamedTuple):
    """Where a partition's fetching stands. `delayed_until_ms` is of the monotonic clock, 0 = not delayed; `refusals`
    counts the answers in a row of a leader that does not know of its leadership yet.
    """

    partition: Partition
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    delayed_until_ms: int = 0
    refusals: int = 0

    def is_ready(self, now_ms: int) -> bool:
        """Whether it may be fetched now."""
        return now_ms >= self.delayed_until_ms


def initial_state(partition: Partition) -> FetchState:
    """The state of a partition that begins to follow: on from its log's end.

    A log without epochs has nothing that a leader could compare: it goes on from its high watermark.
    """
    log = partition.log
    assert log is not None, "a follower has a log"
    epoch = log.latest_epoch
    offset = log.log_end_offset if epoch != NO_EPOCH else log.high_watermark
    return FetchState(partition, partition.leader_epoch, offset, epoch)


def refusal_pause_ms(refusals: int, backoff_max_ms: int) -> int:
    """How long to wait for a leader that has said so many times that it is none: longer each time.

    Why not the whole backoff, as Kafka does: after an election each broker hears of it within milliseconds of the
    others, and a producer with acks=all waits for the followers.
    """
    return min(backoff_max_ms, FIRST_PAUSE_MS << min(refusals, 10))


def truncation_offset(leader: EpochEnd, *, own: EpochEnd, log_end_offset: int, high_watermark: int) -> int:
    """Where to cut the follower's log (the first offset that goes), given where the leader's epochs end.

    `leader`: the leader's greatest epoch not above ours, and its end there; `own`: our greatest epoch not above that
    one, and its end here. If we do not have that epoch, what we know of it ends where our older one does; the next
    answer may diverge again, further down.
    """
    if leader.end_offset == NO_OFFSET:
        return high_watermark
    if leader.leader_epoch == NO_EPOCH or own.end_offset == NO_OFFSET:
        return min(leader.end_offset, log_end_offset)
    return min(leader.end_offset, own.end_offset, log_end_offset)


class Wanted(NamedTuple):
    """What is asked of a partition."""

    topic_id: bytes
    fetch_offset: int
    log_start_offset: int
    leader_epoch: int
    last_fetched_epoch: int


class Build(NamedTuple):
    """A request of a session: what it names, and what the session is then about."""

    session_id: int
    session_epoch: int
    changed: dict[TopicPartition, Wanted]
    forgotten: dict[TopicPartition, bytes]


class ClientSession:
    """The fetcher's end of a fetch session (KIP-227). Owner: the fetcher's thread."""

    def __init__(self) -> None:
        self._id = INVALID_SESSION_ID
        self._epoch = INITIAL_SESSION_EPOCH
        self._told: dict[TopicPartition, Wanted] = {}  # as the leader knows it

    def build(self, wanted: dict[TopicPartition, Wanted]) -> Build:
        """Name what changed since the last request; everything at the beginning of a session. `wanted` is kept."""
        if self._epoch == INITIAL_SESSION_EPOCH:
            self._told = wanted
            return Build(self._id, self._epoch, wanted, {})
        told = self._told
        changed = {tp: item for tp, item in wanted.items() if told.get(tp) != item}
        # Why also renamed ones: under another topic id it is another partition of the session.
        forgotten = {
            tp: item.topic_id for tp, item in told.items() if tp not in wanted or wanted[tp].topic_id != item.topic_id
        }
        self._told = wanted
        return Build(self._id, self._epoch, changed, forgotten)

    def partition_of(self, topic_id: bytes, index: int, names: Mapping[bytes, str]) -> TopicPartition | None:
        """The partition that an answer means."""
        name = names.get(topic_id)
        return None if name is None else TopicPartition(name, index)

    def names(self) -> dict[bytes, str]:
        """The topics of the session by id."""
        return {item.topic_id: tp.topic for tp, item in self._told.items()}

    def accepted(self, session_id: int) -> None:
        """An answer without an error: the session goes on, or (id 0) the leader keeps none."""
        self._id = session_id
        self._epoch = INITIAL_SESSION_EPOCH if session_id == INVALID_SESSION_ID else self._epoch + 1

    def reset(self, *, keep_id: bool = False) -> None:
        """Begin anew: after a failure (closing the old session) or an answer that knows it not."""
        if not keep_id:
            self._id = INVALID_SESSION_ID
        self._epoch = INITIAL_SESSION_EPOCH
        self._told = {}


def soonest_ms(states: Iterable[FetchState]) -> int:
    """When the next delayed partition is ready; 0 if there is none."""
    return min((state.delayed_until_ms for state in states), default=0)
