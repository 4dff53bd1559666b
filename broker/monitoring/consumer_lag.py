"""Consumer lag: pure arithmetic over committed and newest offsets.

The lag of a partition is its high watermark minus the committed offset, and never below 0 (a watermark may have been
read before a later commit). The lag in time is the time since the high watermark was at the group's offset.
`OffsetHistory` keeps past watermarks with their times, and interpolates between them.

Threads: one, the exporter's.
Source: danielqsj/kafka_exporter (names and sums), Grafana's fork of it (lag in time).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.common.topic_partition import TopicPartition

HISTORY_MS: Final = 3_600_000
HISTORY_MAX: Final = 720


class OffsetHistory:
    """The high watermarks of a partition in the last hour, with their times."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=HISTORY_MAX)  # (offset, wall ms), both ascending

    def add(self, offset: int, now_ms: int) -> None:
        """Add the present high watermark. A lower one than before (the topic was recreated) starts a new history."""
        samples = self._samples
        if samples and offset < samples[-1][0]:
            samples.clear()
        # Why at most two samples of one offset: the first and the last time of that offset are enough.
        if len(samples) >= 2 and samples[-1][0] == samples[-2][0] == offset:
            samples.pop()
        samples.append((offset, now_ms))
        while samples and now_ms - samples[0][1] > HISTORY_MS:
            samples.popleft()

    def age_ms(self, committed: int, now_ms: int) -> int:
        """Return the ms since the high watermark passed `committed`: 0 if it did not, at most the history's length."""
        samples = list(self._samples)
        if not samples or committed >= samples[-1][0]:
            return 0
        index = bisect_right(samples, committed, key=lambda sample: sample[0])
        if index == 0:
            return now_ms - samples[0][1]
        (low, low_ms), (high, high_ms) = samples[index - 1], samples[index]
        at_ms = low_ms + (high_ms - low_ms) * (committed - low) / (high - low)
        return max(0, round(now_ms - at_ms))


@dataclass(slots=True)
class GroupLags:
    """The shown numbers of groups, by label values."""

    positions: dict[tuple[str, str, str], tuple[int, int, int, int]] = field(default_factory=dict)
    """(group, topic, partition) -> committed offset, lag, lag again, lag in ms"""
    topics: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(group, topic) -> sums of committed offsets and lags"""
    members: dict[tuple[str], tuple[int]] = field(default_factory=dict)


def group_lags(
    committed: Mapping[str, Mapping[TopicPartition, int]],
    newest: Mapping[TopicPartition, int],
    histories: Mapping[TopicPartition, OffsetHistory],
    members: Mapping[str, int],
    now_ms: int,
) -> GroupLags:
    """Compute the lags of all groups; positions in partitions whose newest offset is unknown are left out."""
    lags = GroupLags(members={(group,): (count,) for group, count in members.items()})
    for group, positions in committed.items():
        sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for tp, offset in positions.items():
            end = newest.get(tp)
            if end is None:
                continue
            lag = max(0, end - offset)
            history = histories.get(tp)
            age_ms = history.age_ms(offset, now_ms) if history is not None and lag else 0
            lags.positions[group, tp.topic, str(tp.partition)] = (offset, lag, lag, age_ms)
            sums[tp.topic][0] += offset
            sums[tp.topic][1] += lag
        for topic, (offsets, lag) in sums.items():
            lags.topics[group, topic] = (offsets, lag)
    return lags


def next_histories(
    known: Mapping[TopicPartition, OffsetHistory],
    read: Iterable[TopicPartition],
    newest: Mapping[TopicPartition, int],
    now_ms: int,
) -> dict[TopicPartition, OffsetHistory]:
    """Return the histories of the partitions that groups read, with the newest offsets; the others are dropped."""
    histories = {}
    for tp in read:
        history = histories[tp] = known.get(tp) or OffsetHistory()
        if tp in newest:
            history.add(newest[tp], now_ms)
    return histories
