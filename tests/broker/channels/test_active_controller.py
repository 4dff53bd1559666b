"""ActiveController: one address at a time, the next one after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.channels.active_controller import ActiveController
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse


class Controllers:
    """Scripted controllers: `active` responds, the others are not active or unreachable."""

    def __init__(self) -> None:
        self.active = "a"
        self.unreachable: set[str] = set()
        self.events: list[str] = []

    def connect(self, host: str, port: int, *, timeout_ms: int, client_id: str, **_: Any) -> Any:
        """Open a connection."""
        assert (timeout_ms, client_id) == (500, "7")
        self.events.append(f"open {host}:{port}")
        return Connection(self, host)


class Connection:
    """One connection."""

    def __init__(self, controllers: Controllers, host: str) -> None:
        self.controllers, self.host = controllers, host

    def send(self, _message: Any, version: int, *, timeout_ms: int | None) -> Any:
        """Respond, or raise NodeConnectionError."""
        self.controllers.events.append(f"send {self.host} v{version} {timeout_ms}")
        if self.host in self.controllers.unreachable:
            raise NodeConnectionError("unreachable")
        is_active = self.host == self.controllers.active
        return DescribeClusterResponse(error_code=ErrorCode.NONE if is_active else ErrorCode.NOT_CONTROLLER)

    def abort(self) -> None:
        """Note the abort."""
        self.controllers.events.append(f"abort {self.host}")

    def close(self) -> None:
        """Note the close."""
        self.controllers.events.append(f"close {self.host}")


@pytest.fixture
def controllers() -> Controllers:
    return Controllers()


@pytest.fixture
def controller(controllers: Controllers) -> ActiveController:
    return ActiveController(7, [("a", 1), ("b", 2)], FakeClock(), timeout_ms=500, connect=controllers.connect)


def test_a_connection_that_works_is_kept(controller: ActiveController, controllers: Controllers) -> None:
    controller.abort()
    controller.close()
    for timeout_ms in (None, 3):
        assert controller.send(DescribeClusterRequest(), 1, timeout_ms=timeout_ms).error_code == 0
    controller.abort()
    controller.close()
    assert controllers.events == ["open a:1", "send a v1 None", "send a v1 3", "abort a", "close a"]


@pytest.mark.parametrize(
    ("unreachable", "reason"), [({"a"}, "unreachable"), (set(), "a:1 is not the active controller")]
)
def test_after_a_failure_the_next_address_is_tried(
    controller: ActiveController, controllers: Controllers, unreachable: set[str], reason: str
) -> None:
    controllers.active, controllers.unreachable = "b", unreachable
    with pytest.raises(NodeConnectionError, match=reason):
        controller.send(DescribeClusterRequest(), 1)
    assert controller.send(DescribeClusterRequest(), 1).error_code == 0
    assert controllers.events == ["open a:1", "send a v1 None", "close a", "open b:2", "send b v1 None"]


def test_the_first_address_comes_again_after_the_last(controller: ActiveController, controllers: Controllers) -> None:
    controllers.unreachable = {"a", "b"}
    for _ in range(3):
        with pytest.raises(NodeConnectionError):
            controller.send(DescribeClusterRequest(), 1)
    assert [event for event in controllers.events if event.startswith("open")] == ["open a:1", "open b:2", "open a:1"]
