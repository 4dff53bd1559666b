"""ActiveController: one address at a time, the next one after a failure."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from barnabas.broker.channels.active_controller import ActiveController
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from barnabas.protocol.push_tags import cluster_id_of


class Controllers:
    """Scripted controllers: `active` responds, the others are not active or unreachable."""

    def __init__(self) -> None:
        self.active = "a"
        self.unreachable: set[str] = set()
        self.nodes: dict[str, tuple[int, str, int]] = {}  # what a standby controller knows of the active one
        self.cluster_id = "own"
        self.events: list[str] = []
        self.senders: list[str | None] = []  # the clusters that requests name

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
        self.controllers.senders.append(cluster_id_of(_message))
        if self.host in self.controllers.unreachable:
            raise NodeConnectionError("unreachable")
        is_active = self.host == self.controllers.active
        if not is_active and _message.endpoint_type == 2:
            known = self.controllers.nodes.get(self.host)
            nodes = [] if known is None else [DescribeClusterBroker(broker_id=known[0], host=known[1], port=known[2])]
            return DescribeClusterResponse(
                cluster_id=self.controllers.cluster_id,
                controller_id=-1 if known is None else known[0],
                brokers=nodes,
            )
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
    return ActiveController(
        7, [("a", 1), ("b", 2)], FakeClock(), timeout_ms=500, cluster_id="own", connect=controllers.connect
    )


def test_each_request_names_the_cluster(controller: ActiveController, controllers: Controllers) -> None:
    """The address may have passed to a controller of another cluster."""
    message = DescribeClusterRequest()
    for _ in range(2):
        controller.send(message, 1)
    assert controllers.senders == ["own", "own"]
    assert len(message.unknown_tagged_fields) == 1


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


def test_a_named_controller_is_asked_next_and_the_others_after_it(
    controller: ActiveController, controllers: Controllers
) -> None:
    controller.send(DescribeClusterRequest(), 1)
    controllers.active = "c"
    controller.follow(("c", 3))
    assert controllers.events[2:] == ["abort a"]
    for _ in range(2):
        assert controller.send(DescribeClusterRequest(), 1).error_code == 0
    assert controllers.events[3:] == ["close a", "open c:3", "send c v1 None", "send c v1 None"]
    controller.follow(("c", 3))
    controllers.active = "b"
    for _ in range(2):
        with pytest.raises(NodeConnectionError):
            controller.send(DescribeClusterRequest(), 1)
    assert controller.send(DescribeClusterRequest(), 1).error_code == 0
    assert [event for event in controllers.events[7:] if "open" in event] == ["open a:1", "open b:2"]


def test_the_news_of_the_controller_that_answers_changes_nothing(
    controller: ActiveController, controllers: Controllers
) -> None:
    controller.follow(("a", 1))
    controller.send(DescribeClusterRequest(), 1)
    controller.follow(("a", 1))
    controller.send(DescribeClusterRequest(), 1)
    assert controllers.events == ["open a:1", "send a v1 None", "send a v1 None"]


def test_news_that_comes_while_a_connection_is_made_aborts_it(controllers: Controllers) -> None:
    """Otherwise the request would wait for a controller that is perhaps paused, until its time is up."""
    news: list[threading.Thread] = []

    def connect(host: str, port: int, **about: Any) -> Any:
        news.append(threading.Thread(target=controller.follow, args=(("b", 2),)))
        news[0].start()
        news[0].join(0.05)  # without a lock, the news finds no connection yet
        connection = controllers.connect(host, port, **about)

        def send(message: Any, version: int, *, timeout_ms: int | None) -> Any:
            news[0].join()
            return Connection.send(connection, message, version, timeout_ms=timeout_ms)

        connection.send = send
        return connection

    controller = ActiveController(
        7, [("a", 1), ("b", 2)], FakeClock(), timeout_ms=500, cluster_id="own", connect=connect
    )
    controller.send(DescribeClusterRequest(), 1)
    assert controllers.events == ["open a:1", "abort a", "send a v1 None"]


def test_a_standby_controller_is_asked_for_an_active_one_that_no_address_names(
    controller: ActiveController, controllers: Controllers
) -> None:
    controllers.active = "c"
    controllers.nodes = {"a": (3, "c", 3), "b": (3, "c", 3)}
    for _ in range(2):
        with pytest.raises(NodeConnectionError, match="not the active controller"):
            controller.send(DescribeClusterRequest(), 1)
    assert controller.send(DescribeClusterRequest(), 1).error_code == 0
    assert controllers.events == [
        *("open a:1", "send a v1 None", "close a"),
        *("open b:2", "send b v1 None", "send b v1 500", "close b"),
        *("open c:3", "send c v1 None"),
    ]


def test_an_active_controller_whose_registered_address_cannot_be_reached_is_not_tried_again_and_again(
    controller: ActiveController, controllers: Controllers
) -> None:
    """Standby controllers go on naming it; an address of the configuration reaches it, too."""
    controllers.active = "x"
    controllers.nodes = dict.fromkeys("ab", (3, "c", 3))
    controllers.unreachable = {"c"}
    for _ in range(7):
        with pytest.raises(NodeConnectionError):
            controller.send(DescribeClusterRequest(), 1)
    opened = [event.split()[1] for event in controllers.events if event.startswith("open")]
    assert opened == ["a:1", "b:2", "c:3", "a:1", "b:2", "c:3", "a:1"]


def test_a_standby_controller_of_another_cluster_is_not_believed(
    controller: ActiveController, controllers: Controllers
) -> None:
    """An address may belong to another cluster by now; its active controller would take requests."""
    controllers.active, controllers.cluster_id = "c", "another"
    controllers.nodes = dict.fromkeys("ab", (3, "c", 3))
    for _ in range(4):
        with pytest.raises(NodeConnectionError, match="not the active controller"):
            controller.send(DescribeClusterRequest(), 1)
    assert "open c:3" not in controllers.events
