"""The arithmetic of replication, `replication/in_sync/isr.py`."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.in_sync.isr import (
    ReplicaState,
    effective_min_isr,
    is_expandable,
    joining_replicas,
    next_high_watermark,
    next_replica_state,
    out_of_sync_replicas,
    reset_replica_state,
)


@pytest.mark.parametrize(
    ("current", "leader_end", "ends", "isr", "joining", "expected"),
    [
        (0, 10, {}, {1}, (), 10),  # no followers: every record is safe
        (0, 10, {2: 7, 3: 4}, {1, 2, 3}, (), 4),  # the slowest in-sync replica decides
        (0, 10, {2: 7, 3: 4}, {1, 2}, (), 7),  # a replica out of sync does not count
        (0, 10, {2: 7, 3: 4}, {1, 2}, (3,), 4),  # unless it is about to join
        (5, 10, {2: -1}, {1, 2}, (), 5),  # unknown yet: the watermark stays
        (9, 10, {2: 3}, {1, 2}, (), 9),  # it never goes back
    ],
)
def test_high_watermark(current, leader_end, ends, isr, joining, expected):
    followers = [ReplicaState(b, log_end_offset=end) for b, end in ends.items()]
    assert (
        next_high_watermark(
            current=current, leader_log_end_offset=leader_end, followers=followers, maximal_isr=isr, joining=joining
        )
        == expected
    )


def test_a_fetch_from_the_end_is_caught_up_now_and_one_from_the_former_end_was_caught_up_then():
    state = ReplicaState(2)
    first = next_replica_state(
        state, fetch_offset=10, log_start_offset=0, now_ms=100, leader_log_end_offset=10, broker_epoch=5
    )
    assert (first.last_caught_up_ms, first.log_end_offset, first.broker_epoch) == (100, 10, 5)
    second = next_replica_state(
        first, fetch_offset=10, log_start_offset=0, now_ms=200, leader_log_end_offset=30, broker_epoch=5
    )
    assert second.last_caught_up_ms == 100  # it had every record at its previous fetch
    third = next_replica_state(
        second, fetch_offset=20, log_start_offset=0, now_ms=300, leader_log_end_offset=40, broker_epoch=5
    )
    assert third.last_caught_up_ms == 100  # 20 < 30: it fell behind


def test_a_lagging_replica_leaves_and_a_caught_up_one_may_join():
    lagging = ReplicaState(2, log_end_offset=5, last_caught_up_ms=0)
    current = ReplicaState(3, log_end_offset=10, last_caught_up_ms=0)
    about = {"leader_log_end_offset": 10, "now_ms": 1000, "lag_max_ms": 500}
    assert out_of_sync_replicas([lagging, current], isr={1, 2, 3}, **about) == {2}
    assert joining_replicas([lagging, current], isr={1}, **about) == {3}
    assert is_expandable(current, isr={1}, high_watermark=10, leader_epoch_start_offset=8)
    assert not is_expandable(current, isr={1}, high_watermark=10, leader_epoch_start_offset=11)
    assert not is_expandable(lagging, isr={1}, high_watermark=6, leader_epoch_start_offset=0)
    assert not is_expandable(current, isr={1, 3}, high_watermark=0, leader_epoch_start_offset=0)


def test_a_new_epoch_gives_members_of_the_isr_time_and_a_new_leader_resets_log_ends():
    known = ReplicaState(2, log_end_offset=9, last_caught_up_ms=50)
    kept = reset_replica_state(known, now_ms=500, leader_log_end_offset=10, is_new_leader=False, is_in_sync=True)
    assert (kept.log_end_offset, kept.last_caught_up_ms) == (9, 500)
    fresh = reset_replica_state(known, now_ms=500, leader_log_end_offset=10, is_new_leader=True, is_in_sync=False)
    assert (fresh.log_end_offset, fresh.last_caught_up_ms) == (-1, 0)


def test_min_isr_never_exceeds_the_replicas():
    assert effective_min_isr(2, 1) == 1
    assert effective_min_isr(2, 3) == 2
