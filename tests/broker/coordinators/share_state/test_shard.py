"""A shard of share states: when it answers, what a failover keeps, and what can be pruned.

Tests `coordinators/share_state/operations.py`, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state import shard as shard_module
from barnabas.broker.coordinators.share_state.values import (
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateSummary,
    StateWrite,
)
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.share_state.shard_rig import KEY, OTHER, TOPIC_ID, ShareStateRig, acknowledged

NONE, UNAVAILABLE, AWAY = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR


@pytest.fixture
def rig() -> ShareStateRig:
    rig = ShareStateRig()
    assert rig.initialize() == [NONE]
    assert rig.read()[0].error == NONE
    return rig


def test_a_share_partition_from_beginning_to_end(rig: ShareStateRig) -> None:
    assert rig.write(acknowledged(0, 4)) == [NONE]
    assert rig.write(acknowledged(5, 9)) == [NONE]
    assert rig.read() == [StateRead(NONE, 1, 0, (acknowledged(0, 9),))]
    assert rig.summary() == [StateSummary(NONE, 1, 1, 0, -1)]
    assert rig.delete() == [NONE]
    assert rig.delete() == [NONE]
    assert rig.read() == [StateRead(ErrorCode.INVALID_REQUEST)]
    assert rig.summary() == [StateSummary(NONE)]
    assert rig.kinds() == "Suuu-"


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (lambda reply: op.Initialize(KEY, reply, 0, -1), ErrorCode.FENCED_STATE_EPOCH),
        (lambda reply: op.Write(KEY, reply, StateWrite(0, 1, 0)), ErrorCode.FENCED_STATE_EPOCH),
        (lambda reply: op.Write(KEY, reply, StateWrite(1, 0, 0)), ErrorCode.FENCED_LEADER_EPOCH),
        (lambda reply: op.Read(KEY, reply, 0), StateRead(ErrorCode.FENCED_LEADER_EPOCH)),
        (lambda reply: op.Read(OTHER, reply, 0), StateRead(ErrorCode.INVALID_REQUEST)),
        (
            lambda reply: op.ReadSummary(SharePartitionKey("g", bytes(16), 0), reply, 0),
            StateSummary(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ),
        (
            lambda reply: op.Delete(SharePartitionKey("g", bytes(16), 0), reply),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    ],
)
def test_what_is_refused_is_not_written(rig: ShareStateRig, operation: Any, error: Any) -> None:
    answers: list[Any] = []
    rig.shard.handle([operation(answers.append)])
    assert answers == [error]
    assert rig.kinds() == "Su"


def test_an_answer_waits_until_its_record_is_committed(rig: ShareStateRig) -> None:
    rig.manager.holds = True
    written, read, summary = rig.write(acknowledged(0, 4)), rig.read(), rig.summary()
    assert written == read == summary == [], "a reader must not see what the next leader might not have"
    rig.manager.release()
    assert written == [NONE]
    assert read == [StateRead(NONE, 1, 0, (acknowledged(0, 4),))]
    assert summary[0].error == NONE


def test_what_times_out_stays_and_may_be_written_again(rig: ShareStateRig) -> None:
    rig.manager.holds = True
    first = rig.write(acknowledged(0, 4))
    rig.manager.release(ErrorCode.REQUEST_TIMED_OUT)
    assert first == [UNAVAILABLE]
    assert rig.read() == [StateRead(UNAVAILABLE)], "it is not known whether the write counts"
    again = rig.write(acknowledged(0, 4))
    rig.manager.release()
    assert again == [NONE]
    assert rig.read() == [StateRead(NONE, 1, 0, (acknowledged(0, 4),))]


def test_what_the_log_refuses_has_not_happened(rig: ShareStateRig) -> None:
    rig.manager.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    answers: list[Any] = []
    rig.shard.handle(
        [
            op.Initialize(OTHER, answers.append, 1, -1),
            op.Initialize(OTHER, answers.append, 1, -1),  # it would not need a record of its own
            rig.a_write(answers, acknowledged(0, 4)),
        ]
    )
    assert answers == [UNAVAILABLE] * 3
    rig.manager.refuses = NONE
    assert rig.read(key=OTHER) == [StateRead(ErrorCode.INVALID_REQUEST)]
    assert rig.read() == [StateRead(NONE, 1)]


def test_the_operations_of_a_call_are_one_batch_and_see_each_other(rig: ShareStateRig) -> None:
    batches = len(rig.log.batches)
    answers: list[Any] = []
    rig.shard.handle(
        [
            op.Initialize(OTHER, answers.append, 1, 7),
            rig.a_write(answers, acknowledged(0, 4)),
            rig.a_write(answers, acknowledged(7, 9), key=OTHER, start_offset=7),
            op.Read(OTHER, answers.append, 0),
        ]
    )
    assert answers == [NONE, NONE, NONE, StateRead(NONE, 1, 7, (acknowledged(7, 9),))]
    assert len(rig.log.batches) == batches + 1


def test_large_calls_are_several_batches(rig: ShareStateRig, monkeypatch) -> None:
    monkeypatch.setattr(shard_module, "APPEND_BYTES_MAX", 150)
    batches = len(rig.log.batches)
    answers: list[Any] = []
    rig.shard.handle([rig.a_write(answers, acknowledged(n, n)) for n in range(10)])
    assert answers == [NONE] * 10
    assert batches + 3 <= len(rig.log.batches) <= batches + 9
    assert rig.read() == [StateRead(NONE, 1, 0, (acknowledged(0, 9),))]


def test_a_failover_keeps_what_was_answered(rig: ShareStateRig) -> None:
    rig.write(acknowledged(0, 4))
    rig.manager.holds = True
    lost = rig.write(acknowledged(5, 9))
    rig.move()
    rig.manager.holds = False
    assert lost == [AWAY]
    assert rig.read() == [StateRead(NONE, 1, 0, (acknowledged(0, 4),))]
    assert rig.read(0) == [StateRead(ErrorCode.FENCED_LEADER_EPOCH)], "the fence is in the log, too"


def test_a_loading_and_a_closed_shard_refuse(rig: ShareStateRig) -> None:
    rig.shard = rig.open()
    assert rig.shard.state is ShardState.LOADING
    assert rig.write(acknowledged(0, 4)) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    rig.shard.close()
    assert rig.read() == [StateRead(AWAY)]
    rig.shard.activate()
    assert rig.read() == [StateRead(AWAY)]


def test_a_bug_takes_the_shard_offline(rig: ShareStateRig) -> None:
    with rig.shard.isolate_failures():
        raise ZeroDivisionError
    assert rig.read() == [StateRead(AWAY)]


# -- pruning


def test_the_log_can_be_pruned_up_to_the_lowest_snapshot() -> None:
    rig = ShareStateRig(updates_per_snapshot=2)
    assert rig.shard.needed_offset() is None
    rig.initialize()
    rig.initialize(OTHER)
    for n in range(3):
        rig.write(acknowledged(n, n))
    assert rig.kinds() == "SSuuS"
    assert rig.shard.needed_offset() == 1
    for n in range(3):
        rig.write(acknowledged(n, n), key=OTHER)
    assert rig.kinds() == "SSuuSuuS"
    assert rig.shard.needed_offset() == 4
    rig.shard.pruned(4)
    assert rig.shard.needed_offset() is None
    assert rig.shard.pruned_offset == 4
    rig.delete()
    assert rig.shard.needed_offset() == 7
    rig.delete(OTHER)
    assert rig.shard.needed_offset() == 10


def test_only_what_is_committed_lets_the_log_be_pruned() -> None:
    rig = ShareStateRig(updates_per_snapshot=0)
    rig.initialize()
    rig.manager.holds = True
    rig.write(acknowledged(0, 0))
    assert rig.shard.needed_offset() is None
    rig.manager.release()
    assert rig.shard.needed_offset() == 1


def test_a_pruned_log_gives_the_same_states() -> None:
    rig = ShareStateRig(updates_per_snapshot=2)
    for key in (KEY, OTHER):
        rig.initialize(key)
    for n in range(20):
        rig.write(acknowledged(n, n), key=(KEY, OTHER)[n % 3 == 0])
    before = dict(rig.shard.look())
    offset = rig.shard.needed_offset()
    assert offset is not None
    rig.log.batches = [batch for batch in rig.log.batches if int.from_bytes(batch[:8], "big") >= offset]
    rig.log.log_start_offset = offset
    rig.move()
    assert dict(rig.shard.look()) == before
    assert rig.shard.needed_offset() == offset


def test_share_partitions_without_writes_get_a_snapshot(rig: ShareStateRig) -> None:
    rig.initialize(OTHER)
    rig.clock.advance_ms(999)
    rig.shard.snapshot_cold(1000)
    assert rig.kinds() == "SuS"
    rig.write(acknowledged(0, 0))
    rig.clock.advance_ms(1)
    rig.shard.snapshot_cold(1000)
    assert rig.kinds() == "SuSuSS"
    assert rig.shard.needed_offset() == 4
    assert rig.read() == [StateRead(NONE, 1, 0, (acknowledged(0, 0),))]
    rig.clock.advance_ms(5000)
    rig.shard.snapshot_cold(1000)
    assert rig.kinds() == "SuSuSS", "nothing changed, so nothing could be pruned"
    rig.move()
    rig.shard.snapshot_cold(1000)
    assert rig.kinds() == "SuSuSSSS", "a new leader does not know"


def test_the_state_of_a_deleted_topic_is_removed(rig: ShareStateRig) -> None:
    mine = SharePartitionKey("g", b"u" * 16, 0)
    rig.known.add(mine.topic_id)
    rig.initialize(mine)
    rig.shard.remove_topics(frozenset({TOPIC_ID}))
    assert set(dict(rig.shard.look())) == {KEY, mine}, "the topic still exists"
    rig.known.discard(TOPIC_ID)
    rig.known.discard(mine.topic_id)
    rig.shard.remove_topics(frozenset({TOPIC_ID}))
    assert set(dict(rig.shard.look())) == {mine}, "only what is named goes"
    assert rig.kinds() == "SuS-"


def test_many_are_handled_some_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(shard_module, "KEYS_AT_ONCE", 3)
    rig = ShareStateRig()
    for n in range(10):
        rig.initialize(SharePartitionKey("g", TOPIC_ID, n))
    batches = len(rig.log.batches)
    rig.known.clear()
    rig.shard.remove_topics(frozenset({TOPIC_ID}))
    assert not rig.shard.look()
    assert len(rig.log.batches) == batches + 4


def test_a_late_write_of_a_deleted_group_changes_nothing_of_the_next_one(rig: ShareStateRig) -> None:
    # The epochs of the next group of the same name begin from the beginning again.
    assert rig.initialize(state_epoch=50) == [NONE]
    assert rig.delete() == [NONE]
    assert rig.initialize(state_epoch=2, start_offset=0) == [NONE]
    answers: list[Any] = []
    late = StateWrite(50, 1, 5, (acknowledged(0, 9),))
    rig.shard.handle([op.Write(KEY, answers.append, late)])
    assert answers == [ErrorCode.FENCED_STATE_EPOCH]
    assert rig.read() == [StateRead(NONE, 2, 0)]


def test_a_large_record_takes_no_others_along_when_the_log_refuses_it(
    rig: ShareStateRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_module, "APPEND_BYTES_MAX", 2000)
    append = rig.manager.append_internal

    def limited(tp: TopicPartition, batch: bytes, *about: Any, **more: Any) -> int:
        if len(batch) > 4000:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
        return append(tp, batch, *about, **more)

    monkeypatch.setattr(rig.manager, "append_internal", limited)
    rig.initialize(OTHER)

    def pieces(count: int) -> list[StateBatch]:
        return [acknowledged(2 * number, 2 * number) for number in range(count)]  # 20 bytes each

    small: list[Any] = []
    large: list[Any] = []
    refused: list[Any] = []
    rig.shard.handle([
        rig.a_write(small, *pieces(90), key=OTHER),
        rig.a_write(large, *pieces(150)),
        rig.a_write(small, *pieces(10), key=OTHER),
        rig.a_write(refused, *pieces(250)),
        rig.a_write(small, *pieces(90), key=OTHER),
    ])  # fmt: skip
    assert (small, large, refused) == ([NONE] * 3, [NONE], [ErrorCode.UNKNOWN_SERVER_ERROR])
    assert len(rig.read()[0].batches) == 150
