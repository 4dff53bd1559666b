"""`replication/reading.py`: a follower's fetch is noted before its partition is read, once, and only if it is valid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import pytest

from barnabas.broker.replication.in_sync.isr import UNKNOWN_OFFSET, ReplicaState
from barnabas.broker.replication.reading import FetchItem, FetchParams, ReadResult
from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.broker_rig import BrokerRig, batch, produce, registration, state, topic_id

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FOLLOWER = 2


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    """Broker 1 leads two partitions, each with two records and one follower."""
    made = BrokerRig()
    made.push({"t": [state(1, (1, FOLLOWER), leader_epoch=3), state(1, (1, FOLLOWER), leader_epoch=3)]})
    for partition in (0, 1):
        made.answer(produce(batch(b"a", b"b"), partition=partition), 9)
    yield made
    made.close()


def params(*, max_bytes: int = 1 << 20, replica_epoch: int = 33) -> FetchParams:
    return FetchParams(
        replica_id=FOLLOWER,
        replica_epoch=replica_epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation=FetchIsolation.LOG_END,
        leader_only=True,
    )


def item(offset: int, *, tp: TopicPartition = TP, id_: bytes | None = None, **epochs: int) -> FetchItem:
    return FetchItem(tp, topic_id("t") if id_ is None else id_, offset, 1 << 20, log_start_offset=0, **epochs)


def read(
    rig: BrokerRig, wanted: FetchItem, moved: list[Hashable] | None, about: FetchParams | None = None
) -> ReadResult:
    ((_, result),) = rig.manager.reader.read_all(about or params(), [wanted], moved)
    return result


def follower(rig: BrokerRig) -> ReplicaState:
    (found,) = rig.manager.partition(TP).followers
    return found


def test_the_follower_gets_the_high_watermark_that_its_fetch_made_possible(rig: BrokerRig) -> None:
    moved: list[Hashable] = []
    assert read(rig, item(0), moved).high_watermark == 0
    result = read(rig, item(2), moved)
    assert (result.error, result.size, result.high_watermark) == (ErrorCode.NONE, 0, 2)
    assert moved == [TP, TP], "the low watermark, known from the first fetch on, then the high watermark"


def test_a_second_read_of_the_same_fetch_notes_nothing(rig: BrokerRig) -> None:
    assert read(rig, item(2), None).high_watermark == 0
    assert follower(rig).log_end_offset == UNKNOWN_OFFSET


def append(rig: BrokerRig) -> None:
    rig.answer(produce(batch(b"c")), 9)


def move_high_watermark(rig: BrokerRig) -> None:
    read(rig, item(2), [])


def change_leader_epoch(rig: BrokerRig) -> None:
    rig.push({"t": [state(1, (1, FOLLOWER), leader_epoch=4, partition_epoch=1)]})


def shrink_isr(rig: BrokerRig) -> None:
    rig.push({"t": [state(1, (1, FOLLOWER), (1,), leader_epoch=3, partition_epoch=1)]})


def restart_follower(rig: BrokerRig) -> None:
    rig.answer(rig.update_metadata({}, registrations=[registration(FOLLOWER, epoch=34)]), 8)


def test_what_a_fetch_has_read_is_read_again_only_where_something_happened(rig: BrokerRig) -> None:
    reader = rig.manager.reader
    both = [item(2, current_leader_epoch=3), item(2, tp=OTHER, current_leader_epoch=3)]
    before = reader.read_all(params(), both, None)
    append(rig)
    (_, first), (_, second) = reader.read_again(params(), before, [])
    assert first.size > 0
    assert second is before[1][1]
    woken = reader.read_again(params(), before[1:], [both[0]])
    assert [(wanted.tp, result.size > 0) for wanted, result in woken] == [(OTHER, False), (TP, True)]


@pytest.mark.parametrize("event", [append, move_high_watermark, change_leader_epoch, shrink_isr, restart_follower])
def test_a_result_is_kept_only_while_it_is_true(rig: BrokerRig, event: Callable[[BrokerRig], None]) -> None:
    before = rig.manager.reader.read_all(params(), [item(2, current_leader_epoch=3)], None)
    ((_, kept),) = rig.manager.reader.read_again(params(), before, [])
    assert kept is before[0][1]
    event(rig)
    ((_, result),) = rig.manager.reader.read_again(params(), before, [])
    assert result is not before[0][1]


def test_a_result_with_records_or_an_error_is_not_kept(rig: BrokerRig) -> None:
    for wanted in (item(0), item(7)):
        before = rig.manager.reader.read_all(params(), [wanted], None)
        ((_, result),) = rig.manager.reader.read_again(params(), before, [])
        assert result is not before[0][1]


def test_every_partition_of_a_fetch_is_noted_even_beyond_its_limit(rig: BrokerRig) -> None:
    moved: list[Hashable] = []
    first, second = rig.manager.reader.read_all(params(max_bytes=1), [item(0), item(2, tp=OTHER)], moved)
    assert (first[1].size > 0, second[1].size, second[1].high_watermark) == (True, 0, 2)
    assert OTHER in moved


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (item(3), ErrorCode.OFFSET_OUT_OF_RANGE),
        (item(-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (item(2, current_leader_epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (item(2, current_leader_epoch=4), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (item(2, last_fetched_epoch=9), ErrorCode.OFFSET_OUT_OF_RANGE),
        (item(2, id_=bytes(15) + b"x"), ErrorCode.INCONSISTENT_TOPIC_ID),
    ],
)
def test_a_refused_fetch_is_not_noted(rig: BrokerRig, wanted: FetchItem, error: ErrorCode) -> None:
    moved: list[Hashable] = []
    assert read(rig, wanted, moved).error is error
    assert (moved, follower(rig).log_end_offset) == ([], UNKNOWN_OFFSET)


def test_a_diverging_fetch_is_not_noted(rig: BrokerRig) -> None:
    rig.push({"t": [state(1, (1, FOLLOWER), leader_epoch=5, partition_epoch=1)]})
    moved: list[Hashable] = []
    result = read(rig, item(2, last_fetched_epoch=4), moved)
    assert result.diverging == (3, 2)
    assert (moved, follower(rig).log_end_offset) == ([], UNKNOWN_OFFSET)


def test_a_fetch_of_an_earlier_incarnation_is_not_noted(rig: BrokerRig) -> None:
    rig.answer(rig.update_metadata({}, registrations=[registration(FOLLOWER, epoch=44)]), 8)
    assert read(rig, item(2), []).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert follower(rig).log_end_offset == UNKNOWN_OFFSET


def test_a_fetch_from_a_log_whose_disk_failed_is_not_noted(rig: BrokerRig) -> None:
    log = rig.manager.partition(TP).log
    assert log is not None
    log.mark_offline(OSError("gone"))
    assert read(rig, item(2), []).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert follower(rig).log_end_offset == UNKNOWN_OFFSET


def test_a_throttled_follower_is_noted_but_gets_no_records(rig: BrokerRig) -> None:
    rig.push({"t": [state(1, (1, FOLLOWER), (1,), leader_epoch=3, partition_epoch=1)]})
    quota = rig.manager.quotas.leader
    quota.set_limit(10)
    quota.throttle("t", ["*"], 1)
    quota.record(TP, 1000)
    assert read(rig, item(0), []).size == 0
    assert follower(rig).log_end_offset == 0


def test_a_partition_whose_first_batch_does_not_fit_any_more_gets_nothing(rig: BrokerRig) -> None:
    """A part of a batch would be of no use, and would make the next fetch begin with another partition (KIP-74)."""
    items = [item(0), item(0, tp=OTHER)]
    reader = rig.manager.reader
    whole = read(rig, item(0), None).size
    for max_bytes in (1, whole, whole + 1, 2 * whole - 1):
        sizes = [result.size for _, result in reader.read_all(params(max_bytes=max_bytes), items)]
        assert sizes == [whole, 0]
    sizes = [result.size for _, result in reader.read_all(params(max_bytes=2 * whole), items)]
    assert sizes == [whole, whole]
