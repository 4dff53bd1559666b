"""Copying a log that is written to and truncated meanwhile; the copy is compared with the source."""

from __future__ import annotations

import random

import pytest

from barnabas.broker.storage.directories.log_copying import catch_up
from barnabas.broker.storage.log.log import Log
from tests.support.broker.storage_bench import Bench, contents


def pair() -> tuple[Bench, Log, Log]:
    bench = Bench()
    source = bench.open()
    copies = Bench(bench.fs, "/other/flights-0.0123-future")
    return bench, source, copies.open()


def epochs(log: Log) -> list[tuple[int, int]]:
    return log.leader_epoch_cache.entries


def test_piece_by_piece() -> None:
    bench, source, target = pair()
    for number in range(50):
        bench.append(source, f"value {number}")
    turns = 0
    while catch_up(source, target, 300):
        turns += 1
    assert turns > 10
    assert contents(target) == contents(source)
    assert (target.high_watermark, target.log_end_offset) == (50, 50)
    assert epochs(target) == epochs(source)


def test_a_batch_larger_than_a_piece() -> None:
    bench, source, target = pair()
    bench.append(source, "x" * 5000)
    assert catch_up(source, target, 100) > 5000


def test_records_that_another_leader_truncated_are_truncated_in_the_copy() -> None:
    bench, source, target = pair()
    for value in ("a", "b", "c", "d"):
        bench.append(source, value, leader_epoch=3)
    catch_up(source, target, 10_000)
    source.truncate_to(2)
    bench.append(source, "C", leader_epoch=5)
    bench.append(source, "D", leader_epoch=5)
    bench.append(source, "E", leader_epoch=6)
    catch_up(source, target, 10_000)
    assert [value for _, value in contents(target)] == ["a", "b", "C", "D", "E"]
    assert epochs(target) == epochs(source) == [(3, 0), (5, 2), (6, 4)]


def test_a_source_that_was_fully_truncated() -> None:
    bench, source, target = pair()
    for value in ("a", "b", "c"):
        bench.append(source, value)
    catch_up(source, target, 10_000)
    source.truncate_fully_and_start_at(100)
    bench.append(source, "new")
    catch_up(source, target, 10_000)
    assert contents(target) == [(100, "new")]
    assert (target.log_start_offset, target.log_end_offset) == (100, 101)


def test_records_that_were_deleted_are_not_copied() -> None:
    bench, source, target = pair()
    for value in ("a", "b", "c"):
        bench.append(source, value)
    catch_up(source, target, 10_000)
    source.maybe_increment_log_start_offset(2, "a test")
    catch_up(source, target, 10_000)
    assert target.log_start_offset == 2


@pytest.mark.parametrize("seed", range(40))
def test_the_copy_becomes_equal_to_the_source(seed: int) -> None:
    chance = random.Random(seed)
    bench, source, target = pair()
    epoch = 0
    for step in range(80):
        match chance.randrange(10):
            case 0:
                cut = chance.randint(source.log_start_offset, source.log_end_offset)
                source.truncate_to(cut)
                epoch += 1
            case 1 if chance.random() < 0.2:
                source.truncate_fully_and_start_at(source.log_end_offset + chance.randint(0, 5))
                epoch += 1
            case 2 if source.high_watermark > source.log_start_offset:
                source.maybe_increment_log_start_offset(
                    chance.randint(source.log_start_offset, source.high_watermark), "a test"
                )
            case 3:
                source.roll()
            case 4 | 5 | 6:
                catch_up(source, target, chance.choice([1, 200, 5000]))
            case _:
                epoch += chance.random() < 0.2
                bench.append(source, f"value {step} of {epoch}", leader_epoch=epoch)
        target.invariants()
    while catch_up(source, target, 1000):
        pass
    start = max(source.log_start_offset, target.log_start_offset)
    assert contents(target, start) == contents(source, start), f"SEED={seed}"
    assert target.log_end_offset == source.log_end_offset
    assert target.log_start_offset <= source.high_watermark
    held = range(start, source.log_end_offset)  # an epoch of which nothing was written comes with the swap
    assert [e for e in epochs(target) if e[1] in held] == [e for e in epochs(source) if e[1] in held], f"SEED={seed}"
