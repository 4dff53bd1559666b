"""Readers and positions that a stale leader does not know; what Java producers write, and their command line."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from tests.stress.clients import NO_EPOCH, SharedHistory, StressReader
from tests.support.kafka.numbered_producers import Load, RecordEvent, parse


def test_lines_of_the_program() -> None:
    assert parse("S 1 5 17\n") == RecordEvent("S", 1, 5, 17)
    assert parse("A 1 5 17 250 123456789\n") == RecordEvent("A", 1, 5, 17, offset=250, at_ns=123456789)
    assert parse("E 1 5 17 org.apache.kafka.TimeoutException: too late") == RecordEvent(
        "E", 1, 5, 17, error="org.apache.kafka.TimeoutException: too late"
    )


def test_its_command_line() -> None:
    load = Load(6, producers=2, first_id=1, seed=9, records_per_turn=(0, 1), settings={"request.timeout.ms": "5000"})
    arguments = load.arguments("host:1", "topic")
    assert arguments[:10] == ["topic", "6", "2", "1", "9", "20", "0,1", "0", "1000000", "0"]
    assert arguments[10:] == ["bootstrap.servers=host:1", "request.timeout.ms=5000"]


class Seeking:
    """A consumer that only notes where it goes on."""

    def __init__(self) -> None:
        self.sought: list[tuple[int, int]] = []

    def seek(self, position: TopicPartition) -> None:
        self.sought.append((position.partition, position.offset))

    def close(self) -> None:
        pass


class Failed:
    """An error in place of a record of partition 2."""

    def __init__(self, text: str) -> None:
        self._error = KafkaError(KafkaError._AUTO_OFFSET_RESET, text)

    def error(self) -> KafkaError:
        return self._error

    def partition(self) -> int:
        return 2


def test_a_reader_goes_on_when_a_stale_leader_does_not_know_its_epoch() -> None:
    reader = StressReader({"bootstrap.servers": "127.0.0.1:1"}, SharedHistory(), "reader", "read_committed")
    reader._consumer.close()
    seeking: Any = Seeking()
    reader._consumer = seeking
    reader.positions[2] = 17
    unknown = Failed(f"{NO_EPOCH} offset 17 (leader epoch 19): broker end offset is -1")
    assert not reader._is_record(cast(Message, unknown))
    assert seeking.sought == [(2, 17)]
    with pytest.raises(AssertionError, match="out of range"):
        reader._is_record(cast(Message, Failed("Offset out of range")))
