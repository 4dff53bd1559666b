"""Turns: which partitions a fetcher asks for next, and what of it the leader does not know yet.

The session with the leader names only changes (KIP-227). So does this: a turn looks at the partitions that were touched
(added, removed, answered, delayed) since the last one, and not at those with which nothing happens. Every COMPARE_MS it
looks at all of them, since a log's start moves by itself; also at the start of a session, and while a throttle may hold
partitions back.

Threads: the fetcher's.
Source: Kafka's AbstractFetcherThread.buildFetch, FetchSessionHandler (4.3), which look at all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.replication.fetching.fetch_state import Build, ClientSession, FetchState, Wanted

if TYPE_CHECKING:
    from barnabas.common.topic_partition import TopicPartition

COMPARE_MS = 10_000

#: Removes the throttled partitions of those to ask for; returns whether there were any.
HoldBack = Callable[["dict[TopicPartition, FetchState]"], bool]


class Turns:
    """See the module."""

    def __init__(self) -> None:
        self.session = ClientSession()
        self.asked: dict[TopicPartition, FetchState] = {}  # the states of the next request, then of the last one
        self.tps: dict[bytes, dict[int, TopicPartition]] = {}  # those asked for, by topic id and index
        self.has_held_back = False
        self._delayed: dict[TopicPartition, None] = {}
        self._compares_all = True  # in the next request
        self._wanted: list[TopicPartition] = []  # touched, and asked for in the next request
        self._gone: list[TopicPartition] = []  # touched, and not asked for any more
        self._compared_ms = 0

    def prepare(
        self,
        states: Mapping[TopicPartition, FetchState],
        touched: dict[TopicPartition, None],
        now_ms: int,
        hold_back: HoldBack | None,
    ) -> None:
        """Choose what to ask for, in `asked`, and clear `touched`. The caller holds the lock of both.

        `hold_back` is None while nothing is throttled.
        """
        is_throttled = hold_back is not None or self.has_held_back
        self._compares_all = is_throttled or self.session.is_new or now_ms - self._compared_ms >= COMPARE_MS
        if self._compares_all:
            self._compared_ms = now_ms
            self.asked = {tp: state for tp, state in states.items() if state.is_ready(now_ms)}
            self._delayed = {tp: None for tp in states if tp not in self.asked}
            self.has_held_back = hold_back is not None and hold_back(self.asked)
        else:
            self._take_touched(states, {**self._delayed, **touched} if self._delayed else touched, now_ms)
        touched.clear()
        if not self.asked:
            self._compared_ms = now_ms - COMPARE_MS  # nothing is sent now: the next request tells what has changed

    def build(self, wanted_of: Callable[[FetchState], Wanted]) -> Build:
        """Return what the request names."""
        if self._compares_all:
            wanted = {tp: wanted_of(state) for tp, state in self.asked.items()}
            self.tps = {}
            self._note_tps(wanted)
            return self.session.build(wanted)
        wanted = {tp: wanted_of(self.asked[tp]) for tp in self._wanted}
        self._note_tps(wanted)
        return self.session.build_changes(wanted, self._gone)

    def _note_tps(self, wanted: Mapping[TopicPartition, Wanted]) -> None:
        for tp, item in wanted.items():
            tps = self.tps.get(item.topic_id)
            if tps is None:
                tps = self.tps[item.topic_id] = {}
            tps[tp.partition] = tp

    def _take_touched(
        self, states: Mapping[TopicPartition, FetchState], touched: Mapping[TopicPartition, None], now_ms: int
    ) -> None:
        self._wanted, self._gone = [], []
        for tp in touched:
            state = states.get(tp)
            if state is not None and state.is_ready(now_ms):
                self._delayed.pop(tp, None)
                self.asked[tp] = state
                self._wanted.append(tp)
                continue
            if self.asked.pop(tp, None) is not None:
                self._gone.append(tp)
            if state is None:
                self._delayed.pop(tp, None)
            else:
                self._delayed[tp] = None
