"""What an address that no client can use is told to be."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas.cli.errors import UserError
from barnabas.cli.reach import check_reachable
from tests.support.cluster import BarnabasCluster

NOBODY = "127.0.0.1:1"


def complaint(bootstrap: str) -> str:
    with pytest.raises(UserError) as caught:
        check_reachable(bootstrap)
    return str(caught.value)


@pytest.fixture
def http_server() -> Iterator[str]:
    """Answers whatever comes with a line of HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            visitor, _ = server.accept()
            with visitor:
                visitor.recv(1000)
                visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_nobody_listens() -> None:
    assert complaint(NOBODY) == f"nothing listens at {NOBODY}; start one: barnabas up"
    assert complaint("no.such.host.invalid:9092") == "the name no.such.host.invalid does not resolve here"


def test_another_protocol(http_server: str) -> None:
    assert complaint(http_server) == f"what listens at {http_server} does not speak Kafka's protocol"


def test_a_controller_and_one_good_address_among_several(cluster: BarnabasCluster) -> None:
    controller = f"127.0.0.1:{cluster.controller.port}"
    assert complaint(f"{NOBODY},{controller}").endswith(
        f"a controller listens at {controller}: clients talk to brokers"
    )
    check_reachable(f"{NOBODY},{cluster.bootstrap}")


def test_who_says_nothing_yet_is_not_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.cli.reach.TIMEOUT_MS", 50)
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_reachable(f"127.0.0.1:{server.getsockname()[1]}")
