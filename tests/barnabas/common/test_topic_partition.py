"""Names of partitions."""

from __future__ import annotations

from barnabas.common.topic_partition import TopicPartition


def test_it_prints_and_compares() -> None:
    tp = TopicPartition("flights", 3)
    assert str(tp) == "flights-3"
    assert tp == TopicPartition("flights", 3)
    assert sorted([tp, TopicPartition("airports", 9)])[0].topic == "airports"
    assert {tp: 1}[TopicPartition("flights", 3)] == 1
