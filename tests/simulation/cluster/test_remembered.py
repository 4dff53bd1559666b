"""What brokers remember beside their logs, on objects made for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.storage.directories.names import CLEAN_SHUTDOWN_FILE
from barnabas.common.topic_partition import TopicPartition
from tests.simulation.cluster.remembered import Remembered

TP = TopicPartition("t", 0)
SEGMENT = "/data/t-0/00000000000000000000.log"


def broker(name: str, producers: dict[int, tuple[int, int]], end: int = 9, *, files: tuple[str, ...] = ()) -> Any:
    """A broker with a log of 9 batches of 8 bytes, its offsets, and producer id -> (epoch, last offset)."""
    content = b"".join(offset.to_bytes(8, "big") for offset in range(9))
    entries = {each: SimpleNamespace(epoch=epoch, last_offset=offset) for each, (epoch, offset) in producers.items()}
    log = SimpleNamespace(
        directory="/data/t-0",
        log_end_offset=end,
        high_watermark=end,
        producer_state=SimpleNamespace(_producers=entries),
        _state=SimpleNamespace(is_usable=True, recent={3: (0, 24), 4: (100, 0)}),
    )
    manager = SimpleNamespace(partitions=lambda: [SimpleNamespace(log=log, topic_id=b"", tp=TP)])
    return SimpleNamespace(
        name=name,
        log=log,
        is_running=True,
        is_stopping=False,
        server=SimpleNamespace(services=SimpleNamespace(replica_manager=manager)),
        disk=SimpleNamespace(files=lambda: [SEGMENT, *files], written=lambda _path: content),
    )


def wrong(*brokers: Any, not_whole: tuple[str, ...] = ()) -> list[str]:
    """What two looks in a row find."""
    remembered = Remembered(SimpleNamespace(brokers=list(brokers)), not_whole)
    assert remembered.check() == []
    return remembered.check()


def test_replicas_that_remember_the_same() -> None:
    assert wrong(broker("a", {1: (0, 5)}), broker("b", {1: (0, 5)})) == []
    assert wrong(broker("a", {1: (0, 5)}), broker("b", {1: (1, -1)})) == [], "a marker of a later epoch"


def test_a_producer_that_a_replica_forgot() -> None:
    text = "t-0: a remembers offset 5 of producer 1 in epoch 0, b remembers None"
    assert wrong(broker("a", {1: (0, 5)}), broker("b", {})) == [text]
    assert wrong(broker("a", {1: (0, 5)}), broker("b", {}), not_whole=("t",)) == []
    assert wrong(broker("a", {1: (0, 5)}), broker("b", {}, end=5)) == [], "it is not replicated yet"


def test_a_producer_of_what_was_truncated() -> None:
    assert wrong(broker("a", {1: (0, 9)})) == ["t-0: a remembers offset 9 of producer 1, and ends at 9"]


def test_a_position_of_what_was_truncated() -> None:
    found = broker("a", {})
    found.log._state.recent[5] = (0, 8)
    assert wrong(found) == ["t-0: a remembers offset 5 at 8, where it is not"]


def test_a_clean_stop_counts_once() -> None:
    found = broker("a", {}, files=(f"/data/{CLEAN_SHUTDOWN_FILE}",))
    assert wrong(found) == [f"a serves with a {CLEAN_SHUTDOWN_FILE}"]
    found.is_stopping = True
    assert wrong(found) == []
