"""The comparison of replicas finds every kind of difference, and none between equal replicas."""

from __future__ import annotations

from pathlib import Path

from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.stress.checks.replicas import batches, differences, read_log


def log(*parts: tuple[int, int, str]) -> bytes:
    """Batches of one record each, as (offset, leader epoch, value)."""
    return b"".join(
        bytes(build_batch([SimpleRecord(1, None, value.encode())], base_offset=offset, leader_epoch=epoch))
        for offset, epoch, value in parts
    )


FIRST, SECOND, THIRD = (0, 0, "a"), (1, 0, "b"), (2, 3, "c")


def test_equal_replicas_do_not_differ() -> None:
    same = log(FIRST, SECOND, THIRD)
    assert differences({"one": same, "two": same, "three": same}, 3) == []


def test_records_above_the_high_watermark_may_differ() -> None:
    assert differences({"one": log(FIRST, SECOND), "two": log(FIRST, (1, 1, "x"))}, 1) == []


def test_another_value_is_found() -> None:
    assert "where two has" in differences({"one": log(FIRST, SECOND), "two": log(FIRST, (1, 0, "x"))}, 2)[0]


def test_another_leader_epoch_is_found() -> None:
    assert "where two has" in differences({"one": log(FIRST, SECOND), "two": log(FIRST, (1, 1, "b"))}, 2)[0]


def test_a_short_replica_is_found() -> None:
    assert differences({"one": log(FIRST, SECOND), "two": log(FIRST)}, 2) == [
        "two ends at 1, below 2",
        "one has 2 batches, two 1",
    ]


def test_an_empty_replica_is_found() -> None:
    assert "two ends at 0, below 1" in differences({"one": log(FIRST), "two": b""}, 1)


def test_a_gap_and_an_epoch_that_goes_back_are_found() -> None:
    assert differences({"one": log(FIRST, THIRD)}, 3) != []
    assert differences({"one": log(FIRST, (1, 2, "b"), (2, 1, "c"))}, 3) != []


def test_a_log_is_read_over_its_segments(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000002.log").write_bytes(log(THIRD))
    (tmp_path / "00000000000000000000.log").write_bytes(log(FIRST, SECOND))
    read = list(batches(read_log(tmp_path)))
    assert [(batch.base_offset, batch.last_offset, batch.leader_epoch) for batch in read] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 3),
    ]
