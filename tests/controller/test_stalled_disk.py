"""The event thread is held up for longer than a session: heartbeats that arrived meanwhile count (sessions.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.requests.request import Request, RequestContext
from barnabas.controller.apis.k63_broker_heartbeat import API
from barnabas.controller.decision import Decision
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.metadata_records import NoOpRecord
from tests.controller.rig import CLUSTER_ID, Rig

CONTEXT = RequestContext("CONTROLLER", "PLAINTEXT", "127.0.0.1", 1, "c")


def rig_of_three() -> Rig:
    rig = Rig()
    rig.join(0, 1, 2)
    rig.create("t", [[0, 1, 2]])
    return rig


def receive_heartbeat(rig: Rig, broker_id: int, epoch: int | None = None) -> None:
    """Let a handler thread take a heartbeat, as it arrives; the event thread has not taken it yet."""
    message = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=rig.image.brokers[broker_id].epoch if epoch is None else epoch,
        current_metadata_offset=rig.image.offset,
        want_fence=False,
        want_shut_down=False,
    )
    services: Any = SimpleNamespace(controller=rig.controller, cluster_id=CLUSTER_ID)
    API.handle(services, Request.for_message(RequestHeader(63, 1, 0, None), message, CONTEXT))


def decide_with_slow_disk(rig: Rig, stall_ms: int, *heard: tuple[int, int | None]) -> None:
    """Let a flush take long; meanwhile heartbeats arrive, of (broker, epoch)."""
    flush = rig.controller._flush

    def slow() -> None:
        rig.clock.advance_ms(stall_ms)
        for broker_id, epoch in heard:
            receive_heartbeat(rig, broker_id, epoch)
        rig.controller._flush = flush
        flush()

    rig.controller._flush = slow
    rig.controller.submit("x", lambda view: Decision([NoOpRecord()], None), lambda _: None, lambda _: None)
    for _ in range(5):
        rig.controller.loop.step()


def fenced(rig: Rig) -> set[int]:
    return {broker.id for broker in rig.image.brokers.values() if broker.is_fenced}


@pytest.mark.parametrize("stall_ms", [10_000, 12_000, 30_000])
def test_a_flush_that_takes_long(stall_ms: int) -> None:
    rig = rig_of_three()
    decide_with_slow_disk(rig, stall_ms, (0, None), (1, None), (2, None))
    assert fenced(rig) == set()
    assert (rig.partition("t").isr, rig.partition("t").leader_epoch) == ((0, 1, 2), 0)


def test_a_heartbeat_that_waits_behind_many_events() -> None:
    rig = rig_of_three()
    rig.clock.advance_ms(10_000)
    for _ in range(70):
        rig.controller.submit("x", lambda view: Decision([], None), lambda _: None, lambda _: None)
    for broker_id in (0, 1, 2):
        receive_heartbeat(rig, broker_id)
    for _ in range(5):
        rig.controller.loop.step()
    assert fenced(rig) == set()
    assert rig.partition("t").leader_epoch == 0


def test_only_heartbeats_of_the_registration_keep_a_broker() -> None:
    rig = rig_of_three()
    known = set(rig.controller.sessions._by_id)
    wrong = rig.image.brokers[2].epoch + 1
    decide_with_slow_disk(rig, 10_000, (0, None), (1, None), (2, wrong), (77, 1))
    assert fenced(rig) == {2}
    assert set(rig.controller.sessions._by_id) == known, "an unknown broker takes no memory"


def test_an_earlier_incarnation_does_not_keep_a_later_one() -> None:
    rig = rig_of_three()
    before = rig.image.brokers[2].epoch
    rig.heartbeat(2, want_fence=True, want_shut_down=True)
    rig.register(2, incarnation=99)
    rig.heartbeat(2)
    decide_with_slow_disk(rig, 10_000, (0, None), (1, None), (2, before))
    assert fenced(rig) == {2}
