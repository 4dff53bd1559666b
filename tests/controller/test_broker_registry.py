"""Broker states: registrations, heartbeats, fencing and controlled shutdown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.controller.broker_registry import BrokerState
from barnabas.controller.image import NO_LEADER
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k62_broker_registration import Feature
from tests.controller.rig import Rig, registration

SESSION_MS = 9_000


def refused(code: ErrorCode, act: Callable[[], object]) -> str:
    with pytest.raises(ApiError) as caught:
        act()
    assert caught.value.code is code
    return str(caught.value)


def test_the_epoch_is_the_offset_of_the_registration() -> None:
    rig = Rig()
    next_offset = rig.image.offset + 1
    assert rig.register(0) == next_offset
    broker = rig.image.brokers[0]
    assert (broker.epoch, broker.is_fenced) == (next_offset, True)
    assert broker.endpoints[0].port == 9000


def test_a_new_incarnation_gets_a_new_epoch_and_leaves_the_isrs() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    rig.tick(SESSION_MS + 1)
    rig.heartbeat(1)
    epoch = rig.register(0, incarnation=7)
    assert epoch == rig.image.brokers[0].epoch == rig.image.offset
    assert rig.partition("t").leader == 1
    assert rig.partition("t").isr == (1,)


def test_the_same_incarnation_amends_its_registration() -> None:
    rig = Rig()
    rig.join(0)
    epoch = rig.image.brokers[0].epoch
    request = registration(0, rack="r2")
    assert rig.decide(lambda view: rig.controller.register(view, request)) == epoch
    assert rig.image.brokers[0].rack == "r2"
    assert not rig.image.brokers[0].is_fenced


def test_a_second_process_with_the_id_is_refused_while_the_first_is_alive() -> None:
    rig = Rig()
    rig.join(0)
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: rig.register(0, incarnation=5))
    rig.tick(SESSION_MS + 1)
    rig.register(0, incarnation=5)


def test_a_broker_that_is_shutting_down_may_be_replaced_at_once() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.CONTROLLED_SHUTDOWN
    rig.register(0, incarnation=5)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(15) + b"\x02"]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [b"d" * 16, b"d" * 16]}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=1, max_supported_version=2)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
        (
            {
                "features": [
                    *registration(9).features,
                    Feature(name="new", min_supported_version=1, max_supported_version=3),
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_invalid_registrations(fields: dict[str, object], code: ErrorCode) -> None:
    rig = Rig()
    before = rig.image
    request = registration(0, **fields)
    refused(code, lambda: rig.decide(lambda view: rig.controller.register(view, request)))
    assert rig.image is before


def test_two_brokers_cannot_have_one_directory() -> None:
    rig = Rig()
    rig.register(0)
    request = registration(1, log_dirs=list(rig.image.brokers[0].log_dirs))
    refused(ErrorCode.INVALID_REGISTRATION, lambda: rig.decide(lambda view: rig.controller.register(view, request)))


def test_a_broker_is_unfenced_once_it_has_caught_up() -> None:
    rig = Rig()
    epoch = rig.register(0)
    reply = rig.heartbeat(0, offset=epoch - 1)
    assert (reply.is_caught_up, reply.state) == (False, BrokerState.FENCED)
    reply = rig.heartbeat(0, offset=epoch, want_fence=True)
    assert (reply.is_caught_up, reply.state) == (True, BrokerState.FENCED)
    assert rig.heartbeat(0, offset=epoch).state is BrokerState.UNFENCED
    assert rig.image.is_active(0)


def test_an_acknowledged_push_counts_as_caught_up() -> None:
    rig = Rig()
    rig.register(0)
    rig.push()
    assert rig.heartbeat(0, offset=-1).state is BrokerState.UNFENCED


def test_a_stale_epoch_is_refused() -> None:
    rig = Rig()
    rig.join(0)
    refused(ErrorCode.STALE_BROKER_EPOCH, lambda: rig.heartbeat(0, epoch=0))


def test_a_silent_broker_is_fenced_and_loses_its_leaderships() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1], [1, 0]])
    rig.create("u", [[0]])
    rig.tick(SESSION_MS - 100)
    rig.heartbeat(1)
    rig.tick(101)
    assert rig.image.brokers[0].is_fenced
    assert not rig.image.brokers[1].is_fenced
    assert [(p.leader, p.isr) for p in (rig.partition("t", 0), rig.partition("t", 1))] == [(1, (1,))] * 2
    u = rig.partition("u")
    assert (u.leader, u.isr, u.elr, u.last_known_elr) == (NO_LEADER, (), (0,), (0,))


def test_a_broker_that_comes_back_leads_what_only_it_has() -> None:
    rig = Rig()
    rig.join(0)
    rig.create("t", [[0]])
    rig.tick(SESSION_MS + 1)
    assert rig.partition("t").leader == NO_LEADER
    rig.heartbeat(0)
    assert rig.partition("t").leader == 0
    assert rig.partition("t").leader_epoch == 2


def test_several_silent_brokers_are_fenced_one_by_one() -> None:
    rig = Rig()
    rig.join(0, 1, 2)
    rig.create("t", [[0, 1, 2]])
    rig.tick(SESSION_MS + 1)
    assert [broker.is_fenced for broker in rig.image.brokers.values()] == [True] * 3
    t = rig.partition("t")
    assert (t.leader, t.isr) == (NO_LEADER, ())
    assert len(t.elr) == 1
    assert t.elr == t.last_known_elr


def test_a_controller_that_slept_fences_no_broker() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.tick(5 * SESSION_MS)
    assert not any(broker.is_fenced for broker in rig.image.brokers.values())
    rig.tick(SESSION_MS + 1)
    assert all(broker.is_fenced for broker in rig.image.brokers.values())


def test_a_controlled_shutdown_moves_the_leaders_first() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    first = rig.heartbeat(0, want_shut_down=True)
    assert first.state is BrokerState.CONTROLLED_SHUTDOWN
    assert rig.partition("t").leader == 1
    assert rig.partition("t").isr == (1,)
    assert not rig.image.brokers[0].is_fenced
    assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.CONTROLLED_SHUTDOWN  # 1 does not know yet
    rig.heartbeat(1)
    assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    assert rig.image.brokers[0].is_fenced


def test_the_last_replica_cannot_be_moved_away() -> None:
    rig = Rig()
    rig.join(0)
    rig.create("t", [[0]])
    assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.CONTROLLED_SHUTDOWN
    t = rig.partition("t")
    assert (t.leader, t.isr, t.elr, t.last_known_elr) == (NO_LEADER, (), (0,), (0,))
    assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW


def test_a_broker_without_leaderships_may_go_at_once() -> None:
    rig = Rig()
    rig.join(0)
    assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW
    assert rig.image.brokers[0].is_fenced
    assert rig.heartbeat(0, want_shut_down=True).state is BrokerState.SHUTDOWN_NOW


def test_a_broker_can_ask_to_be_fenced() -> None:
    rig = Rig()
    rig.join(0)
    assert rig.heartbeat(0, want_fence=True).state is BrokerState.FENCED
    assert rig.image.brokers[0].is_fenced


def test_an_unregistered_broker_is_gone() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.create("t", [[0, 1]])
    rig.decide(lambda view: rig.controller.unregister(view, 0))
    assert 0 not in rig.image.brokers
    assert rig.partition("t").isr == (1,)
    refused(ErrorCode.STALE_BROKER_EPOCH, lambda: rig.heartbeat(0, epoch=1))
    refused(
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        lambda: rig.decide(lambda view: rig.controller.unregister(view, 0)),
    )


def test_a_failed_log_directory_leaves_the_registration() -> None:
    from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest

    rig = Rig()
    dirs = [b"a" * 16, b"b" * 16]
    request = registration(0, log_dirs=dirs)
    rig.decide(lambda view: rig.controller.register(view, request))
    beat = BrokerHeartbeatRequest(
        broker_id=0,
        broker_epoch=rig.image.brokers[0].epoch,
        current_metadata_offset=rig.image.offset,
        offline_log_dirs=[b"b" * 16],
    )
    rig.decide(lambda view: rig.controller.heartbeat(view, beat))
    assert rig.image.brokers[0].log_dirs == (b"a" * 16,)


def test_a_heartbeat_that_unfences_and_reports_a_failed_directory_elects_no_replica_there() -> None:
    from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
    from tests.controller.decisions.test_directories import assign

    rig = Rig()
    dirs = [b"a" * 16, b"b" * 16]
    rig.decide(lambda view: rig.controller.register(view, registration(0, log_dirs=dirs)))
    rig.join(1)
    rig.heartbeat(0)
    assign(rig, 0, dirs[0], rig.create("here", [[0]]), 0)
    assign(rig, 0, dirs[1], rig.create("there", [[0, 1]]), 0)
    rig.heartbeat(1, want_fence=True)
    rig.heartbeat(0, want_fence=True)
    assert [rig.partition(name).leader for name in ("here", "there")] == [NO_LEADER] * 2
    beat = BrokerHeartbeatRequest(
        broker_id=0,
        broker_epoch=rig.image.brokers[0].epoch,
        current_metadata_offset=rig.image.offset,
        offline_log_dirs=[dirs[1]],
    )
    assert rig.decide(lambda view: rig.controller.heartbeat(view, beat)).state is BrokerState.UNFENCED
    assert rig.image.brokers[0].log_dirs == (dirs[0],)
    assert rig.partition("here").leader == 0
    assert rig.partition("there").leader == NO_LEADER
    assert (rig.partition("there").isr, rig.partition("there").elr) == ((), (0,)), "only it has every record"
