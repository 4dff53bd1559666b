"""The output of the Java producers is parsed; their command line (tests/support/kafka/numbered_producers.py)."""

from __future__ import annotations

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
