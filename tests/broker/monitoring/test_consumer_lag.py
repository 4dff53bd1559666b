"""The arithmetic of consumer lag."""

from __future__ import annotations

import pytest

from barnabas.broker.monitoring.consumer_lag import HISTORY_MS, OffsetHistory, group_lags, next_histories
from barnabas.common.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_lags_and_their_sums() -> None:
    committed = {"g": {A0: 7, A1: 10, B0: 5}, "h": {A0: 10}}
    told = group_lags(committed, {A0: 10, A1: 9}, {}, {"g": 2, "h": 0}, now_ms=0)
    assert told.positions == {
        ("g", "a", "0"): (7, 3, 3, 0),
        ("g", "a", "1"): (10, 0, 0, 0),  # a commit after the watermark was read
        ("h", "a", "0"): (10, 0, 0, 0),
    }  # the end of b is unknown
    assert told.topics == {("g", "a"): (17, 3), ("h", "a"): (10, 0)}
    assert told.members == {("g",): (2,), ("h",): (0,)}


@pytest.mark.parametrize(
    ("committed", "age_ms"),
    [(400, 0), (300, 0), (250, 5_000), (200, 10_000), (100, 20_000), (50, 30_000)],
)
def test_the_lag_in_time_comes_from_the_history(committed: int, age_ms: int) -> None:
    history = OffsetHistory()
    for offset, at_ms in ((100, 0), (100, 10_000), (200, 20_000), (300, 30_000)):
        history.add(offset, at_ms)
    assert history.age_ms(committed, 30_000) == age_ms


def test_a_history_ends_after_an_hour_and_when_a_topic_is_recreated() -> None:
    history = OffsetHistory()
    history.add(100, 0)
    history.add(200, HISTORY_MS + 1)
    assert history.age_ms(100, HISTORY_MS + 1) == 0
    history.add(5, HISTORY_MS + 2)
    assert history.age_ms(1, HISTORY_MS + 12) == 10


def test_an_idle_partition_keeps_two_samples_only() -> None:
    history = OffsetHistory()
    for at_ms in range(0, 100_000, 5_000):
        history.add(7, at_ms)
    history.add(8, 100_000)
    assert history.age_ms(7, 100_000) == 5_000, "it was at 7 until the last sample before"


def test_histories_are_kept_for_partitions_that_groups_read() -> None:
    first = next_histories({}, [A0, B0], {A0: 1, B0: 2}, 0)
    second = next_histories(first, [A0], {A0: 3}, 1000)
    assert second.keys() == {A0}
    assert second[A0] is first[A0]
    told = group_lags({"g": {A0: 1}}, {A0: 3}, second, {}, 2000)
    assert told.positions["g", "a", "0"] == (1, 2, 2, 2000)
