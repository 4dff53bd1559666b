"""Names of partitions."""

from __future__ import annotations

from barnabas.common.topic_partition import TopicPartition, partitions_by_topic


def test_it_prints_and_compares() -> None:
    tp = TopicPartition("flights", 3)
    assert str(tp) == "flights-3"
    assert tp == TopicPartition("flights", 3)
    assert sorted([tp, TopicPartition("airports", 9)])[0].topic == "airports"
    assert {tp: 1}[TopicPartition("flights", 3)] == 1


def test_partitions_are_grouped_by_topic() -> None:
    partitions = [TopicPartition("b", 2), TopicPartition("a", 0), TopicPartition("b", 1)]
    assert partitions_by_topic(partitions) == {"b": [2, 1], "a": [0]}
