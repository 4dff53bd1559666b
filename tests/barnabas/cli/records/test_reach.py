"""Errors for addresses that no client can use."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas.cli.errors import UserError
from barnabas.cli.records.reach import check_reachable
from tests.support.cluster import BarnabasCluster

NO_LISTENER = "127.0.0.1:1"


def complaint(bootstrap: str) -> str:
    with pytest.raises(UserError) as caught:
        check_reachable(bootstrap)
    return str(caught.value)


@pytest.fixture
def http_server() -> Iterator[str]:
    """Answers any request with a line of HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_an_address_without_listener_and_an_unknown_name() -> None:
    assert complaint(NO_LISTENER) == f"nothing listens at {NO_LISTENER}; start one: barnabas up"
    assert complaint("no.such.host.invalid:9092") == "the name no.such.host.invalid does not resolve here"


def test_another_protocol(http_server: str) -> None:
    assert complaint(http_server) == f"what listens at {http_server} does not speak Kafka's protocol"


def test_a_controller_and_one_good_address_among_several(cluster: BarnabasCluster) -> None:
    controller = f"127.0.0.1:{cluster.controller.port}"
    assert complaint(f"{NO_LISTENER},{controller}").endswith(
        f"a controller listens at {controller}: clients talk to brokers"
    )
    check_reachable(f"{NO_LISTENER},{cluster.bootstrap}")


def test_a_listener_that_does_not_answer_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.records.reach.TIMEOUT_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"127.0.0.1:{server.getsockname()[1]}")
