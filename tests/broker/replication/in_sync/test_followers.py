"""`replication/in_sync/followers.py`: the followers that count, may join, lag or hold a watermark back."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.in_sync.followers import MOMENT_MAX_MS, MOMENTS, Followers
from barnabas.broker.replication.in_sync.isr import UNKNOWN_OFFSET
from barnabas.broker.replication.role import LeadershipChange, leader_role
from barnabas.common.clock import FakeClock

CHANGE = LeadershipChange(1, 0, 0, (1, 2), (1, 2, 3))
LAG_MAX_MS = 1000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def dead() -> set[int]:
    """The brokers that are not alive; none is eligible either."""
    return set()


@pytest.fixture
def followers(clock: FakeClock, dead: set[int]) -> Followers:
    """Brokers 2 (in sync) and 3 follow a leader whose log ends at 10."""
    made = Followers(clock, LAG_MAX_MS, lambda id_: id_ not in dead, lambda id_, epoch: id_ not in dead and epoch != 99)
    clock.advance_ms(LAG_MAX_MS * 10)
    reset(made)
    return made


def reset(followers: Followers, *, is_new_leader: bool = True, is_new_epoch: bool = True) -> None:
    followers.reset(
        CHANGE, local_id=1, leader_log_end_offset=10, is_new_leader=is_new_leader, is_new_epoch=is_new_epoch
    )


def fetch(followers: Followers, id_: int, offset: int, *, start: int = 0, epoch: int = 5) -> None:
    followers.note_fetch(
        followers.states[id_],
        fetch_offset=offset,
        log_start_offset=start,
        now_ms=followers._clock.monotonic_ms(),
        leader_log_end_offset=10,
        broker_epoch=epoch,
    )


def test_a_reset_in_the_same_epoch_keeps_known_followers(followers: Followers) -> None:
    assert followers.states.keys() == {2, 3}
    fetch(followers, 2, 7)
    reset(followers, is_new_leader=False, is_new_epoch=False)
    assert followers.states[2].log_end_offset == 7
    reset(followers)
    assert followers.states[2].log_end_offset == UNKNOWN_OFFSET
    followers.clear()
    assert followers.states == {}


def test_the_low_watermark_ignores_dead_followers(followers: Followers, dead: set[int]) -> None:
    fetch(followers, 2, 10, start=4)
    assert followers.low_watermark(5) == UNKNOWN_OFFSET
    dead.add(3)
    assert followers.low_watermark(5) == 4


def test_a_caught_up_eligible_follower_is_joining(followers: Followers, dead: set[int]) -> None:
    isr = frozenset({1, 2})
    assert list(followers.joining(isr, 10)) == []
    fetch(followers, 3, 10)
    assert list(followers.joining(isr, 10)) == [3]
    assert list(followers.joining(frozenset({1, 2, 3}), 10)) == []
    fetch(followers, 3, 10, epoch=99)
    assert list(followers.joining(isr, 10)) == []


def test_a_fetch_that_repeats_the_last_one_within_a_moment_is_noted(followers: Followers) -> None:
    moment_ms = LAG_MAX_MS // MOMENTS
    reset(followers)
    fetch(followers, 2, 10)
    at_ms = followers.states[2].last_fetch_ms
    same = {"fetch_offset": 10, "log_start_offset": 0, "now_ms": at_ms, "leader_log_end_offset": 10, "broker_epoch": 5}
    assert followers.is_noted(2, **same)
    assert followers.is_noted(2, **{**same, "now_ms": at_ms + moment_ms})
    assert not followers.is_noted(3, **same)
    news = {"fetch_offset": 11, "log_start_offset": 1, "leader_log_end_offset": 11, "broker_epoch": 6}
    for name, value in {**news, "now_ms": at_ms + moment_ms + 1}.items():
        assert not followers.is_noted(2, **{**same, name: value}), name


def test_a_moment_is_short_however_much_lag_is_allowed(clock: FakeClock) -> None:
    patient = Followers(clock, 86_400_000, lambda _: True, lambda *_: True)
    reset(patient)
    fetch(patient, 2, 10)
    same = {"fetch_offset": 10, "log_start_offset": 0, "leader_log_end_offset": 10, "broker_epoch": 5}
    at_ms = patient.states[2].last_fetch_ms
    assert patient.is_noted(2, now_ms=at_ms + MOMENT_MAX_MS, **same)
    assert not patient.is_noted(2, now_ms=at_ms + MOMENT_MAX_MS + 1, **same)


def test_a_silent_member_of_the_isr_lags_after_the_allowed_time(followers: Followers, clock: FakeClock) -> None:
    isr = frozenset({1, 2})
    clock.advance_ms(LAG_MAX_MS)
    assert followers.lagging(isr, 10) == frozenset()
    clock.advance_ms(1)
    assert followers.lagging(isr, 10) == {2}
    fetch(followers, 2, 10)
    assert followers.lagging(isr, 10) == frozenset()


def test_members_are_named_with_their_epochs(followers: Followers) -> None:
    fetch(followers, 2, 10)
    assert followers.members(frozenset({2, 1})) == ((1, -1), (2, 5))


def test_members_and_joining_followers_hold_the_watermark_back(followers: Followers, clock: FakeClock) -> None:
    role = leader_role(CHANGE, start=0)
    assert followers.hold_back(followers.states[2], role, 10)
    assert not followers.hold_back(followers.states[3], role, 10)
    fetch(followers, 3, 10)
    assert followers.hold_back(followers.states[3], role, 10)
    clock.advance_ms(7)
    assert followers.ms_since_fetch(followers.states[3]) == 7
