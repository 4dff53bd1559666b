"""The client side of a control socket: barnabas/control.py."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cluster import ClusterError
from barnabas.control import ask, control_path, short_name


@contextlib.contextmanager
def supervisor(directory: Path, response: bytes | None) -> Iterator[list[object]]:
    """Answer one request on a directory's control socket (None: never); yields the requests."""
    requests: list[object] = []
    with socket.socket(socket.AF_UNIX) as control:
        with short_name(control_path(directory)) as name:
            control.bind(name)
        control.listen()

        def serve() -> None:
            connection, _ = control.accept()
            with connection:
                requests.append(json.loads(connection.recv(65536)))
                if response is None:
                    connection.recv(1)  # until the client gives up
                else:
                    connection.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        yield requests
        thread.join()


def test_the_answer_is_returned(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)  # too deep for an AF_UNIX address
    deep.mkdir(parents=True)
    with supervisor(deep, b'{"done": "broker-0 killed"}') as requests:
        assert ask(deep, "kill", 0) == "broker-0 killed"
    assert requests == [{"action": "kill", "id": 0}]


def test_an_error_is_raised(tmp_path: Path) -> None:
    refusal = pytest.raises(ClusterError, match=r"^broker-0 is not running$")
    with supervisor(tmp_path, b'{"error": "broker-0 is not running"}'), refusal:
        ask(tmp_path, "kill", 0)


def test_a_supervisor_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with supervisor(tmp_path, None), pytest.raises(ClusterError, match="did not answer within 0 s"):
        ask(tmp_path, "kill", 0, timeout_s=0.05)


@pytest.mark.parametrize("makes_directory", [True, False])
def test_a_directory_without_a_cluster_is_an_error(tmp_path: Path, makes_directory: bool) -> None:
    directory = tmp_path if makes_directory else tmp_path / "missing"
    with pytest.raises(ClusterError, match=f"no cluster runs in {directory}"):
        ask(directory, "kill", 0)


def test_an_invalid_answer_is_an_error(tmp_path: Path) -> None:
    with supervisor(tmp_path, b"not JSON"), pytest.raises(ClusterError, match="no cluster runs in"):
        ask(tmp_path, "kill", 0)
