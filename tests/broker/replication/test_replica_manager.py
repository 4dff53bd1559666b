"""`replication/replica_manager.py`: appends of clients and coordinators, their errors, and the gauges of partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.meters import Gauge
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.support.broker.broker_rig import BrokerRig, batch, state

ALONE, REPLICATED = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    """Broker 1 leads t-0 alone and t-1 with a follower; t-2 is led by broker 2."""
    made = BrokerRig()
    made.push({"t": [state(1), state(1, (1, 2)), state(2, (1, 2))]})
    yield made
    made.close()


def follow(rig: BrokerRig, offset: int) -> None:
    partition = rig.manager.partition(REPLICATED)
    if rig.manager.isr_updates.note_fetch(
        partition, 2, fetch_offset=offset, log_start_offset=0, now_ms=rig.clock.monotonic_ms(), broker_epoch=1
    ):
        rig.manager.complete_delayed(REPLICATED)


def append(rig: BrokerRig, tp: TopicPartition, records: bytes) -> int:
    info, _ = rig.manager.append_one(tp, memoryview(bytearray(records)), required_acks=1, origin=AppendOrigin.CLIENT)
    return info.first_offset


def test_an_internal_append_to_one_replica_is_done_at_once(rig: BrokerRig) -> None:
    outcomes: list[Any] = []
    assert append(rig, ALONE, batch(b"a")) == 0
    first = rig.manager.append_internal(ALONE, batch(b"b"), 1000, lambda *outcome: outcomes.append(outcome))
    assert (first, outcomes) == (1, [(ErrorCode.NONE, 1)])


def test_an_internal_append_waits_for_the_in_sync_replicas(rig: BrokerRig) -> None:
    outcomes: list[Any] = []
    rig.manager.append_internal(REPLICATED, batch(b"a"), 1000, lambda *outcome: outcomes.append(outcome))
    follow(rig, 0)
    assert outcomes == []
    follow(rig, 1)
    assert outcomes == [(ErrorCode.NONE, 0)]


def test_a_bug_in_waking_idle_partitions_holds_no_waiting_request_back(
    rig: BrokerRig, caplog: pytest.LogCaptureFixture
) -> None:
    class Session:
        def wake(self, _key: Any) -> bool:
            raise RuntimeError("our bug in waking")

    rig.manager.idle_partitions.add(Session(), [(REPLICATED, ("t", 1))])  # type: ignore[arg-type]
    outcomes: list[Any] = []
    rig.manager.append_internal(REPLICATED, batch(b"a"), 1000, lambda *outcome: outcomes.append(outcome))
    follow(rig, 0)
    follow(rig, 1)
    assert outcomes == [(ErrorCode.NONE, 0)]
    assert "our bug in waking" in caplog.text


def test_an_idle_partition_that_moved_often_is_woken_once(rig: BrokerRig) -> None:
    woken: list[Any] = []

    class Session:
        def wake(self, key: Any) -> bool:
            woken.append(key)
            return False

    rig.manager.idle_partitions.add(Session(), [(REPLICATED, ("t", 1))])  # type: ignore[arg-type]
    rig.manager.complete_all_delayed([REPLICATED] * 3)
    assert woken == [("t", 1)]


def test_an_internal_append_times_out(rig: BrokerRig) -> None:
    outcomes: list[Any] = []
    rig.manager.append_internal(REPLICATED, batch(b"a"), 1000, lambda *outcome: outcomes.append(outcome))
    rig.advance_ms(1001)
    assert outcomes == [(ErrorCode.REQUEST_TIMED_OUT, 0)]


def test_a_caller_with_a_lock_wakes_the_waiters_itself(rig: BrokerRig) -> None:
    moved: set[TopicPartition] = set()
    rig.manager.append_internal(ALONE, batch(b"a"), 1000, lambda *_: None, moved=moved)
    assert moved == {ALONE}


def test_when_committed_reports_safe_records_and_lost_leadership(rig: BrokerRig) -> None:
    outcomes: list[ErrorCode] = []
    append(rig, REPLICATED, batch(b"a", b"b"))
    rig.manager.when_committed(REPLICATED, 1, 1000, outcomes.append)
    rig.manager.when_committed(REPLICATED, 2, 1000, outcomes.append)
    follow(rig, 1)
    assert outcomes == [ErrorCode.NONE]
    rig.push({"t": [state(1), state(2, (1, 2), leader_epoch=1, partition_epoch=1)]})
    assert outcomes == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(
    ("tp", "records", "error", "start"),
    [
        (TopicPartition("t", 2), batch(b"a"), ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (TopicPartition("t", 9), batch(b"a"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ALONE, batch(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE, -1),
        (
            ALONE,
            batch(b"a", producer_id=1, producer_epoch=0, base_sequence=7, is_transactional=True),
            ErrorCode.INVALID_TXN_STATE,
            0,
        ),
    ],
)
def test_a_failed_append_names_the_log_start_unless_the_error_forbids_it(
    rig: BrokerRig, tp: TopicPartition, records: bytes, error: ErrorCode, start: int
) -> None:
    with pytest.raises(ApiError) as caught:
        append(rig, tp, records)
    failed = rig.manager.failed_append(tp, caught.value)
    assert (failed.error, failed.log_start_offset) == (error, start)


def test_gauges_count_partitions(rig: BrokerRig) -> None:
    rig.push({"t": [state(1), state(1, (1, 2), isr=(1,), partition_epoch=1)]})
    rig.manager.hosted.mark_offline(ALONE)
    collected = dict(rig.registry.collect())

    def value(row: catalogue.Metric) -> float:
        ((_, gauge),) = collected[row]
        assert isinstance(gauge, Gauge)
        return gauge.read()

    assert value(catalogue.PARTITION_COUNT) == 2
    assert value(catalogue.LEADER_COUNT) == 1
    assert value(catalogue.UNDER_REPLICATED_PARTITIONS) == 1
    assert value(catalogue.OFFLINE_REPLICA_COUNT) == 1


def test_a_new_replica_is_out_of_sync_as_soon_as_it_may_fetch(rig: BrokerRig) -> None:
    assert rig.manager.is_in_sync(REPLICATED)
    rig.push({"t": [state(1), state(1, (1, 2, 3), (1, 2), partition_epoch=1)]}, live=False)
    rig.manager.partition(REPLICATED).require_follower(3, 0)
    assert not rig.manager.is_in_sync(REPLICATED)
    assert rig.manager.is_in_sync(TopicPartition("t", 2))
