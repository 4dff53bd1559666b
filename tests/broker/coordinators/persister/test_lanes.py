"""Lanes: one operation of a share partition at a time, in order; writes that wait become one."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.coordinators.persister import lanes as lanes_module
from barnabas.broker.coordinators.persister.lanes import Lanes
from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateBatch, StateWrite
from barnabas.protocol.errors import ErrorCode

K, L = SharePartitionKey("g", bytes(16), 0), SharePartitionKey("g", bytes(16), 1)


def write(offset: int, answers: list[Any], *, start: int = -1, state_epoch: int = 1, leader_epoch: int = 1) -> op.Write:
    batch = StateBatch(offset, offset, 2, 1)
    return op.Write(K, answers.append, StateWrite(state_epoch, leader_epoch, start, (batch,), offset))


def test_one_at_a_time_in_order() -> None:
    lanes, answers = Lanes(), []
    first, second, third = op.Read(K, answers.append, 1), op.Delete(K, answers.append), op.Read(K, answers.append, 2)
    other = op.Read(L, answers.append, 1)
    assert [lanes.add(each) for each in (first, second, third, other)] == [True, False, False, True]
    assert len(lanes) == 2
    assert lanes.done(K) is second
    assert lanes.done(K) is third
    assert lanes.done(K) is None
    assert lanes.done(L) is None
    assert len(lanes) == 0
    assert lanes.add(first)


def test_writes_that_wait_become_one() -> None:
    lanes, answers = Lanes(), []
    lanes.add(op.Read(K, answers.append, 1))
    for each in (write(3, answers, start=2), write(5, answers, start=4), write(4, answers)):
        lanes.add(each)
    lanes.add(op.Delete(K, answers.append))
    merged = lanes.done(K)
    assert isinstance(merged, op.Write)
    batches = tuple(StateBatch(offset, offset, 2, 1) for offset in (3, 5, 4))
    assert merged.write == StateWrite(1, 1, 4, batches, 4)
    merged.reply(ErrorCode.NONE)
    assert answers == [ErrorCode.NONE] * 3, "each is answered"
    assert isinstance(lanes.done(K), op.Delete)


@pytest.mark.parametrize("other", [{"state_epoch": 2}, {"leader_epoch": 2}])
def test_writes_of_other_epochs_stay_apart(other: dict[str, int]) -> None:
    lanes, answers = Lanes(), []
    lanes.add(op.Read(K, answers.append, 1))
    first, second = write(3, answers), write(4, answers, **other)
    lanes.add(first)
    lanes.add(second)
    assert lanes.done(K) is first
    assert lanes.done(K) is second


def test_a_merged_write_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "MERGED_BATCHES_MAX", 2)
    lanes, answers = Lanes(), []
    lanes.add(op.Read(K, answers.append, 1))
    for offset in range(3):
        lanes.add(write(offset, answers))
    merged = lanes.done(K)
    assert isinstance(merged, op.Write)
    assert len(merged.write.batches) == 2
    last = lanes.done(K)
    assert isinstance(last, op.Write)
    assert [batch.first_offset for batch in last.write.batches] == [2]


def test_at_the_end_those_that_wait_are_taken() -> None:
    lanes, answers = Lanes(), []
    waiting = [op.Delete(K, answers.append), op.Read(K, answers.append, 1)]
    for each in (op.Read(K, answers.append, 1), *waiting):
        lanes.add(each)
    assert list(lanes.take_all()) == waiting
    assert lanes.done(K) is None
