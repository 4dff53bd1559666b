"""Registrations: brokers that have applied other metadata, or use another broker's id or address, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Listener
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.push_tags import TAG_OBEYED_OFFSET, Applied, set_applied
from tests.controller.rig import Rig, registration
from tests.controller.test_broker_registry import SESSION_MS, refused


def register(rig: Rig, request: BrokerRegistrationRequest) -> int:
    epoch: int = rig.decide(lambda view: rig.controller.register(view, request))
    return epoch


def at(port: int, host: str = "127.0.0.1") -> dict[str, Any]:
    return {"listeners": [Listener(name="PLAINTEXT", host=host, port=port, security_protocol=0)]}


def with_applied(broker_id: int, offset: int, epoch: int = -1, **more: Any) -> BrokerRegistrationRequest:
    request = registration(broker_id, **more)
    set_applied(request, Applied(offset, epoch))
    return request


# -- addresses


def test_two_brokers_that_are_alive_cannot_have_one_address() -> None:
    rig = Rig()
    rig.join(0)
    for broker_id in (1, 2):
        request = registration(broker_id, **at(9000))
        message = refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda r=request: register(rig, r))
        assert message.startswith("broker 0 advertises 127.0.0.1:9000 already; give broker")
    assert set(rig.image.brokers) == {0}


def test_any_listener_counts_and_names_are_compared_as_dns_does() -> None:
    rig = Rig()
    listeners = [
        Listener(name="PLAINTEXT", host="a", port=1, security_protocol=0),
        Listener(name="INSIDE", host="Host", port=7, security_protocol=0),
    ]
    register(rig, registration(0, listeners=listeners))
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: register(rig, registration(1, **at(7, "hOST"))))
    register(rig, registration(1, **at(8, "host")))


def test_a_fenced_broker_that_starts_keeps_its_address() -> None:
    rig = Rig()
    rig.register(0)
    refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: register(rig, registration(1, **at(9000))))


def test_the_address_of_a_silent_broker_passes_to_another() -> None:
    rig = Rig()
    rig.join(0, 1, 2)
    rig.create("t", [[0, 1, 2]])
    rig.tick(SESSION_MS - 1)
    rig.heartbeat(1)
    rig.heartbeat(2)
    rig.tick(2)
    assert rig.image.brokers[0].is_fenced
    register(rig, registration(3, **at(9000)))
    assert set(rig.image.brokers) == {1, 2, 3}, "the sender for 0 would push to 3"
    assert 0 in rig.partition("t").replicas
    refused(ErrorCode.STALE_BROKER_EPOCH, lambda: rig.heartbeat(0, epoch=1))
    register(rig, registration(0, incarnation=1, **at(9100)))
    rig.heartbeat(0)


def test_a_broker_after_a_controlled_shutdown_frees_its_address_at_once() -> None:
    rig = Rig()
    rig.join(0, 1)
    rig.heartbeat(0, want_shut_down=True)
    assert rig.image.brokers[0].is_fenced
    register(rig, registration(4, **at(9000)))


# -- metadata that the controller does not have


def test_a_broker_that_has_applied_more_than_the_log_holds_is_refused() -> None:
    rig = Rig()
    rig.join(0)
    endings: list[str] = []
    rig.controller._on_hopeless = endings.append
    for offset in (rig.image.offset + 1, 2**63 - 1):
        message = refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda o=offset: register(rig, with_applied(1, o)))
        assert "has applied metadata offset" in message
    register(rig, with_applied(1, rig.image.offset, rig.controller.epoch))
    assert endings == []


def test_a_heartbeat_with_more_than_an_old_log_holds_forces_a_registration() -> None:
    """The old copy has the registration. Only the applied offset of the broker shows that the log is old."""
    rig = Rig()
    rig.join(0)
    broker = rig.image.brokers[0]

    def beat(applied: Applied) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=0, broker_epoch=broker.epoch, current_metadata_offset=rig.image.offset
        )
        set_applied(request, applied)
        return rig.decide(lambda view: rig.controller.heartbeat(view, request))

    beat(Applied(rig.image.offset, rig.controller.epoch))
    for applied_there in (
        Applied(rig.image.offset + 1, rig.controller.epoch),
        Applied(broker.epoch, rig.controller.epoch + 1),
    ):
        message = refused(ErrorCode.STALE_BROKER_EPOCH, lambda t=applied_there: beat(t))
        assert "has applied metadata offset" in message
    rig = rig.restart()
    beat(Applied(rig.image.offset, rig.controller.epoch))


def test_an_empty_controller_ends_with_advice() -> None:
    rig = Rig()
    endings: list[str] = []
    rig.controller._on_hopeless = endings.append
    other = with_applied(1, 500, 1)
    other.cluster_id = "other"
    refused(ErrorCode.INCONSISTENT_CLUSTER_ID, lambda: register(rig, other))
    assert endings == []
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: register(rig, with_applied(1, 500, 1)))
    (line,) = endings
    assert "metadata log is empty, but broker 1 has applied metadata offset 500" in line
    assert "barnabas controller recover" in line
    assert "\n" not in line


def test_a_different_log_of_the_same_length_does_not_hold_the_offset() -> None:
    rig = Rig()
    applied_there = Applied(rig.image.offset + 5, 1)
    for _ in range(10):
        rig = rig.restart()
    assert rig.image.offset > applied_there.offset
    assert rig.controller.epoch > applied_there.epoch
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: register(rig, with_applied(1, *applied_there)))


def test_the_log_holds_its_offsets_across_restarts_and_snapshots() -> None:
    rig = Rig()
    rig.join(0)
    applied_there = [Applied(rig.image.offset, rig.controller.epoch)]
    for round_ in range(3):
        rig.controller._log._max_bytes = 100
        rig.controller.loop.step()
        rig = rig.restart()
        applied_there.append(Applied(rig.image.offset, rig.controller.epoch))
        for number, applied in enumerate(applied_there, 1 + 10 * round_):
            register(rig, with_applied(number, *applied))


def test_a_tag_of_a_wrong_size_is_an_invalid_registration() -> None:
    rig = Rig()
    request = registration(1)
    request.unknown_tagged_fields = ((TAG_OBEYED_OFFSET, b"123"),)
    refused(ErrorCode.INVALID_REGISTRATION, lambda: register(rig, request))


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_broker_that_has_applied_nothing_may_register(offset: int) -> None:
    register(Rig(), with_applied(1, offset))
