"""RegistrationManager: a standby controller registers until the metadata shows it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.metadata.features import SUPPORTED_FEATURES
from barnabas.client.connection import NodeConnectionError
from barnabas.common.processes.host_name import own_host_name
from barnabas.controller.image import METADATA_VERSION, Controller, Endpoint, Image
from barnabas.controller.metadata.opened_log import own_listeners
from barnabas.controller.raft.voter_set import Listener
from barnabas.controller.registration.manager import (
    ARRIVAL_MS,
    REPLACED_MS,
    RETRY_MS,
    RETRY_MS_MAX,
    RegistrationManager,
    own_registration,
    request_of,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k70_controller_registration import ControllerRegistrationResponse
from tests.controller.rig import make_config

OWN = Controller(101, b"i" * 16, (Endpoint("CONTROLLER", "h", 7, 0),), (("metadata.version", 7, 30),))
FEATURES = {METADATA_VERSION: 30}


class Channel:
    """The connection to the active controller."""

    def __init__(self, *codes: ErrorCode | None) -> None:
        self.codes = list(codes)  # None: it cannot be reached
        self.sent: list[Any] = []
        self.events: list[str] = []

    def send(self, message: Any, version: int) -> ControllerRegistrationResponse:
        """Answer with the next code."""
        assert version == 0
        self.sent.append(message)
        code = self.codes.pop(0)
        if code is None:
            raise NodeConnectionError("unreachable")
        return ControllerRegistrationResponse(error_code=code)

    def abort(self) -> None:
        """Note it."""
        self.events.append("abort")

    def close(self) -> None:
        """Note it."""
        self.events.append("close")


def test_the_own_registration_has_the_listeners_of_controllers() -> None:
    config = make_config(listeners="CONTROLLER://:0", controller_quorum_voters="100@me:9")
    own = own_registration(config, b"x" * 16, {"CONTROLLER": 4711}.__getitem__)
    assert own.endpoints == (Endpoint("CONTROLLER", "me", 4711, 0),)
    assert (own.id, own.incarnation_id) == (100, b"x" * 16)
    assert {name: (low, high) for name, low, high in own.features} == {**SUPPORTED_FEATURES, "kraft.version": (0, 1)}
    alone = own_registration(config, b"x" * 16, {"CONTROLLER": 4711}.__getitem__, is_alone=True)
    assert {name: (low, high) for name, low, high in alone.features} == dict(SUPPORTED_FEATURES)
    request = request_of(own)
    assert [(e.name, e.host, e.port, e.security_protocol) for e in request.listeners] == [tuple(own.endpoints[0])]
    assert len(request.features) == len(own.features)


def test_it_tries_again_later_and_later() -> None:
    channel = Channel(None, ErrorCode.NOT_CONTROLLER, *[None] * 10, ErrorCode.NONE, None)
    manager = RegistrationManager(OWN, channel)  # type: ignore[arg-type]
    delays = [manager.register_once() for _ in range(14)]
    assert delays[:3] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS]
    assert delays[11:] == [RETRY_MS_MAX, ARRIVAL_MS, RETRY_MS]
    assert channel.sent[0] == request_of(OWN)


@pytest.mark.parametrize(
    ("image", "is_sent"),
    [
        (Image(), False),  # no metadata yet
        (Image(features={METADATA_VERSION: 14}), False),
        (Image(features=FEATURES, controllers={101: OWN}), False),
        (Image(features=FEATURES, controllers={101: OWN._replace(incarnation_id=b"j" * 16)}), True),
        (Image(features=FEATURES), True),
    ],
)
def test_it_registers_if_the_metadata_lacks_it(image: Image, is_sent: bool) -> None:
    channel = Channel(ErrorCode.NONE)
    manager = RegistrationManager(OWN, channel)  # type: ignore[arg-type]
    manager.committed(image)
    assert manager._is_registered is not is_sent


def test_the_thread_sends_until_the_metadata_shows_it_and_ends() -> None:
    channel = Channel(ErrorCode.NONE)
    manager = RegistrationManager(OWN, channel)  # type: ignore[arg-type]

    def send(message: Any, version: int) -> ControllerRegistrationResponse:
        manager.committed(Image(features=FEATURES, controllers={101: OWN}))
        return Channel.send(channel, message, version)

    channel.send = send  # type: ignore[method-assign]
    manager.committed(Image(features=FEATURES))
    manager.start()
    with manager._condition:
        assert manager._condition.wait_for(lambda: not channel.codes or manager._is_registered, 60)
    manager.stop()
    assert len(channel.sent) == 1
    assert channel.events == ["abort", "close"]


def shows(controller: Controller) -> Image:
    return Image(features=FEATURES, controllers={controller.id: controller})


def test_another_process_with_its_id_is_named_and_they_do_not_take_turns_without_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A copied configuration. Each of them would register as soon as it sees the other: as fast as records commit."""
    other = OWN._replace(incarnation_id=b"j" * 16, endpoints=(Endpoint("CONTROLLER", "copy", 8, 0),))
    manager = RegistrationManager(OWN, Channel(*[ErrorCode.NONE] * 3))  # type: ignore[arg-type]
    manager.committed(shows(other))
    assert (manager.pause_ms(), caplog.messages) == (0, []), "the process that had the id before"
    manager.committed(shows(OWN))
    for _ in range(2):
        manager.committed(shows(other))
        assert manager.pause_ms() == REPLACED_MS
        assert manager.pause_ms() == 0, "once each time"
        manager.committed(shows(OWN))
    assert caplog.messages == ["Another process has registered as controller 101, at copy:8: two have node.id=101"] * 2
    manager.committed(shows(other._replace(id=100)))
    assert manager.pause_ms() == 0, "its own one is gone, as with an older log"


def test_a_pause_ends_with_the_manager() -> None:
    channel = Channel()
    manager = RegistrationManager(OWN, channel)  # type: ignore[arg-type]
    for image in (shows(OWN), shows(OWN._replace(incarnation_id=b"j" * 16))):
        manager.committed(image)
    manager.start()
    manager.stop()
    assert channel.sent == []


def test_a_start_does_not_wait_for_the_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("socket.getfqdn")
    monkeypatch.setattr("socket.gethostname", lambda: "this-host")
    own = own_registration(make_config(listeners="CONTROLLER://:7"), b"x" * 16, {}.__getitem__)
    assert own.endpoints == (Endpoint("CONTROLLER", "this-host", 7, 0),)


def test_a_listener_without_a_host_is_reached_by_the_name_of_this_host() -> None:
    """An empty one would get into the voter set by the first election, and nobody could ask that voter again."""
    several = make_config(listeners="CONTROLLER://:9093", controller_quorum_bootstrap_servers="a:1,b:1")
    assert own_listeners(several) == (Listener("CONTROLLER", own_host_name(), 9093),)
    assert own_host_name()
