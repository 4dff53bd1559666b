"""DescribeQuorum names the brokers, which are pushed to, as Kafka's brokers are named, which fetch."""

from __future__ import annotations

from barnabas.controller.push.observing_brokers import SILENT_MS, observing_brokers
from barnabas.protocol.messages.k55_describe_quorum import ReplicaState
from tests.controller.rig import Rig, registration

END = 1_000  # the leader's; what is not pushed is in it, too


def observers(rig: Rig, *others: int) -> dict[int, ReplicaState]:
    found = observing_brokers(rig.controller, others, END, rig.clock.monotonic_ms(), rig.clock.wall_ms())
    return {state.replica_id: state for state in found}


def rig_of_two() -> Rig:
    rig = Rig()
    rig.join(0, 1)
    rig.push()
    for broker_id in (0, 1):
        rig.heartbeat(broker_id)
    return rig


def test_a_broker_that_has_applied_everything_has_the_end_of_the_log() -> None:
    rig = rig_of_two()
    rig.clock.advance_ms(70)
    now_ms = rig.clock.wall_ms()
    for state in observers(rig).values():
        assert state.log_end_offset == END
        assert (state.last_fetch_timestamp, state.last_caught_up_timestamp) == (now_ms - 70, now_ms - 70)


def test_a_broker_that_lags_tells_how_far_and_since_when() -> None:
    rig = rig_of_two()
    applied, caught_up_ms = rig.image.offset, rig.clock.wall_ms()
    rig.create("t", [[0, 1]])
    rig.clock.advance_ms(500)
    state = observers(rig)[0]
    assert (state.log_end_offset, state.last_caught_up_timestamp) == (applied + 1, caught_up_ms)
    rig.heartbeat(0, offset=applied)  # now its session knows
    noticed_ms = rig.clock.wall_ms()
    rig.clock.advance_ms(300)
    rig.heartbeat(0, offset=applied)
    state = observers(rig)[0]
    assert (state.log_end_offset, state.last_caught_up_timestamp) == (applied + 1, noticed_ms)
    assert state.last_fetch_timestamp == rig.clock.wall_ms()


def test_an_acknowledged_push_counts_before_the_next_heartbeat() -> None:
    rig = rig_of_two()
    rig.create("t", [[0, 1]])
    rig.push()
    assert [state.log_end_offset for state in observers(rig).values()] == [END, END]


def test_a_broker_that_never_had_everything_says_so() -> None:
    rig = rig_of_two()
    rig.register(2)
    assert 2 not in observers(rig), "nobody knows whether it is there"
    rig.heartbeat(2, offset=-1)
    rig.create("t", [[0]])
    rig.heartbeat(2, offset=0)
    state = observers(rig)[2]
    assert (state.log_end_offset, state.last_caught_up_timestamp) == (1, -1)


def test_a_broker_that_is_silent_for_long_is_no_observer() -> None:
    rig = rig_of_two()
    for _ in range(SILENT_MS // 1_000):
        rig.tick(1_000)
        rig.heartbeat(1)
    assert list(observers(rig)) == [0, 1]
    rig.tick(1)
    assert list(observers(rig)) == [1]


def test_a_broker_that_was_gone_before_a_failover_is_none_after_it() -> None:
    rig = rig_of_two()
    rig.heartbeat(0, want_fence=True)
    after = rig.restart()
    assert list(observers(after)) == [1]


def test_a_broker_in_the_process_of_a_controller_is_no_observer_of_its_own() -> None:
    assert list(observers(rig_of_two(), 0, 100)) == [1]


def test_the_directory_is_the_first_one() -> None:
    rig = rig_of_two()
    first = bytes([7] * 16)
    request = registration(3, log_dirs=[first, bytes([8] * 16)])
    rig.decide(lambda view: rig.controller.register(view, request))
    rig.heartbeat(3)
    assert observers(rig)[3].replica_directory_id == first
