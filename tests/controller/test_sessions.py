"""Sessions: a broker that no push reaches is fenced, and returns once it has applied what it missed."""

from __future__ import annotations

from barnabas.controller.broker_registry import BrokerState
from barnabas.controller.image import NO_LEADER
from barnabas.controller.sessions import FIRST_PUSH_MS
from tests.controller.rig import Rig
from tests.controller.test_broker_registry import SESSION_MS

LAG_MS = 5_000


def beat(rig: Rig, ms: int, **offsets: int) -> None:
    """Let time pass with heartbeats: `b1=7` reports offset 7, others that they have applied everything."""
    for _ in range(ms // 500):
        for broker_id, broker in list(rig.image.brokers.items()):
            offset = offsets.get(f"b{broker_id}")
            rig.heartbeat(broker.id, offset=offset)
        rig.tick(500)


def rig_of_three() -> Rig:
    rig = Rig(barnabas_metadata_lag_max_ms=str(LAG_MS))
    rig.join(0, 1, 2)
    beat(rig, 1_000)
    return rig


def test_a_broker_out_of_reach_is_fenced_and_not_elected_until_it_has_applied_what_it_missed() -> None:
    rig = rig_of_three()
    rig.create("before", [[1, 0, 2]])
    missed = rig.image.offset
    rig.create("t", [[1, 0, 2], [2, 1, 0]])
    beat(rig, LAG_MS - 500, b1=missed)
    assert rig.image.is_active(1)
    beat(rig, 1_500, b1=missed)
    assert rig.image.brokers[1].is_fenced
    assert [rig.partition("t", i).leader for i in (0, 1)] == [0, 2]
    beat(rig, 10 * LAG_MS, b1=missed)
    assert rig.image.brokers[1].is_fenced, "it stays fenced though it reports"
    assert rig.heartbeat(1).state is BrokerState.UNFENCED
    beat(rig, 3 * LAG_MS)
    assert not rig.image.brokers[1].is_fenced


def test_a_lagging_broker_is_not_elected_when_another_leader_fails() -> None:
    rig = rig_of_three()
    offset = rig.image.offset
    rig.create("t", [[0, 1]])
    beat(rig, LAG_MS + 1_000, b1=offset)
    rig.heartbeat(0, want_fence=True)
    t = rig.partition("t")
    assert (t.leader, t.isr, t.elr) == (NO_LEADER, (), (0,))


def test_a_slow_broker_that_makes_progress_is_not_fenced() -> None:
    rig = rig_of_three()
    for _ in range(10):
        offset = rig.image.offset
        rig.create(f"t{offset}", [[0, 1, 2]])
        beat(rig, LAG_MS - 1_000, b1=offset)
    assert rig.image.is_active(1)


def test_if_no_broker_applies_pushes_none_is_fenced() -> None:
    rig = rig_of_three()
    offset = rig.image.offset
    rig.create("t", [[0, 1, 2]])
    beat(rig, 4 * LAG_MS, b0=offset, b1=offset, b2=offset)
    assert all(rig.image.is_active(id_) for id_ in range(3))
    beat(rig, 1_500, b1=offset)
    assert not rig.image.is_active(1), "now others have applied it"


def test_records_that_are_not_pushed_make_no_broker_lag() -> None:
    from tests.controller.test_quorum_controller import allocate

    rig = rig_of_three()
    offset = rig.image.offset
    allocate(rig, 0)
    beat(rig, 4 * LAG_MS, b1=offset)
    assert rig.image.is_active(1)


def test_a_starting_controller_allows_time_for_full_pushes() -> None:
    rig = rig_of_three()
    again = Rig(rig.fs, rig.clock, barnabas_metadata_lag_max_ms=str(LAG_MS))
    beat(again, FIRST_PUSH_MS, b1=0)
    assert again.image.is_active(1)
    beat(again, LAG_MS + 1_000, b1=0)
    assert not again.image.is_active(1)
    third = Rig(rig.fs, rig.clock, barnabas_metadata_lag_max_ms=str(LAG_MS))
    beat(third, 2_000, b1=third.image.brokers[1].epoch)
    assert not third.image.is_active(1), "a restart does not unfence it"
    third.push()
    third.heartbeat(1, offset=0)
    assert third.image.is_active(1), "an acknowledged push counts"


def test_a_single_broker_is_never_fenced_for_its_lag() -> None:
    rig = Rig(barnabas_metadata_lag_max_ms=str(LAG_MS))
    rig.join(0)
    offset = rig.image.offset
    rig.create("t", [[0]])
    beat(rig, 60_000, b0=offset)
    assert rig.image.is_active(0)


def test_a_broker_that_returns_gets_time_to_apply_what_it_missed() -> None:
    """It had not applied everything when it fell silent: that was long ago when it reports again."""
    lag_ms = 2 * SESSION_MS
    rig = Rig(barnabas_metadata_lag_max_ms=str(lag_ms))
    rig.join(0, 1, 2)
    beat(rig, 1_000)
    offset = rig.image.offset
    rig.create("t", [[0, 1, 2]])
    rig.heartbeat(1, offset=offset)
    for _ in range(100):
        for broker_id in (0, 2):
            rig.heartbeat(broker_id)
        rig.tick(500)
    assert rig.image.brokers[1].is_fenced
    assert rig.heartbeat(1, offset=offset).state is BrokerState.UNFENCED
    beat(rig, lag_ms - 1_000, b1=offset)
    assert rig.image.is_active(1)
    beat(rig, 2_000, b1=offset)
    assert not rig.image.is_active(1)
