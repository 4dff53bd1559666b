from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.address import VARIABLE
from barnabas.cli.admin import doctor
from barnabas.cluster import free_ports
from tests.barnabas.cli.conftest import Barnabas
from tests.support.cluster import BarnabasCluster


def test_a_healthy_cluster_passes(barnabas: Barnabas, bootstrap: str, cluster: BarnabasCluster) -> None:
    assert barnabas("doctor").rows == [[bootstrap, bootstrap, "0", "127.0.0.1", "yes", "-"]]
    broker_file = str(cluster.nodes[0].directory / "server.properties")
    for_nodes = f"127.0.0.1:{cluster.nodes[0].internal_port}"
    assert barnabas("doctor", broker_file).rows == [
        [address, address, "0", "127.0.0.1", "yes", "-"] for address in (bootstrap, for_nodes)
    ]
    controller_file = str(cluster.controller.directory / "server.properties")
    (row,) = json.loads(barnabas("doctor", controller_file, "--json").out)
    assert (row["answers"], row["advertised"], row["problem"]) == (True, None, None)


def test_an_advertised_address_without_listener_is_found(tmp_path: Path, barnabas: Barnabas) -> None:
    inside, outside = (f"127.0.0.1:{port}" for port in free_ports(2))
    config = {
        "listeners": f"PLAINTEXT://{inside},OUTSIDE://{outside}",
        "advertised.listeners": f"PLAINTEXT://{inside},OUTSIDE://127.0.0.1:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
    }
    sound = [inside, inside, "0", "127.0.0.1", "yes", "-"]
    wrong = [outside, "127.0.0.1:1", "0", "127.0.0.1", "no", "cannot connect to 127.0.0.1:1: Connection refused"]
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as cluster:
        assert cluster.bootstrap == inside
        outcome = barnabas("doctor", "--bootstrap", outside)
        assert outcome.rows == [wrong]
        assert (outcome.code, outcome.err) == (1, "barnabas: 1 of 1 addresses would fail a client\n")
        by_file = barnabas("doctor", str(cluster.nodes[0].directory / "server.properties"))
        assert (by_file.code, by_file.rows) == (1, [sound, wrong])


def test_an_unreachable_broker_is_found_by_its_file(tmp_path: Path, barnabas: Barnabas) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=0\nlisteners=PLAINTEXT://127.0.0.1:1\nadvertised.listeners=PLAINTEXT://127.0.0.1:2\n")
    outcome = barnabas("doctor", str(file))
    assert outcome.code == 1
    assert [row[:2] for row in outcome.rows] == [["127.0.0.1:1", "-"], ["127.0.0.1:1", "127.0.0.1:2"]]


def test_a_file_that_is_newer_than_the_broker_is_found(
    tmp_path: Path, barnabas: Barnabas, cluster: BarnabasCluster
) -> None:
    text = (cluster.nodes[0].directory / "server.properties").read_text()
    file = tmp_path / "server.properties"
    file.write_text(f"{text}advertised.listeners=PLAINTEXT://broker.example.org:9092\n")
    outcome = barnabas("doctor", str(file))
    assert outcome.code == 1
    assert outcome.rows[0][-1] == "the file says broker.example.org:9092: restart the broker to advertise it"


@pytest.fixture
def mute_listener() -> Iterator[str]:
    """A listener that accepts a connection and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_listener_that_is_not_a_broker_is_found(barnabas: Barnabas, mute_listener: str) -> None:
    outcome = barnabas("doctor", "--bootstrap", mute_listener)
    assert outcome.code == 1
    assert outcome.rows[0][4] == "no"
    assert "failed" in outcome.rows[0][5]


def test_an_address_without_listener_is_found(barnabas: Barnabas) -> None:
    outcome = barnabas("doctor", "--bootstrap", "127.0.0.1:1,[::1]:1")
    assert outcome.code == 1
    assert [row[4] for row in outcome.rows] == ["no", "no"]


def test_a_name_that_does_not_resolve_and_a_loopback_for_others_are_found(
    barnabas: Barnabas, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_resolve", lambda _: None)
    assert barnabas("doctor").rows[0][-1] == "the name 127.0.0.1 does not resolve here"
    answers = iter(["127.0.0.1", "10.0.0.7"])
    monkeypatch.setattr(doctor, "_resolve", lambda _: next(answers))
    assert "clients on other machines would connect to themselves" in barnabas("doctor").rows[0][-1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num.io.threads=0", "Invalid value 0 for configuration num.io.threads"),
        ("listeners=PLAINTEXT://:0", "listener PLAINTEXT takes a free port"),
    ],
)
def test_a_file_that_cannot_be_checked_is_one_line(tmp_path: Path, barnabas: Barnabas, text: str, words: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    outcome = barnabas("doctor", str(file))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"barnabas: {file}: {words}")
    both = barnabas("doctor", str(file), "--bootstrap", "h:1")
    assert both.err == "barnabas: give FILE or --bootstrap, not both\n"


def test_the_address_in_a_clients_file_is_examined(
    tmp_path: Path, barnabas: Barnabas, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\nsecurity.protocol=PLAINTEXT\n")
    file.chmod(0o600)
    monkeypatch.setenv(VARIABLE, "127.0.0.1:2")
    assert barnabas("doctor", "--command-config", str(file)).rows[0][0] == "127.0.0.1:1"
    assert barnabas("doctor", "--command-config", str(file), "-b", "127.0.0.1:3").rows[0][0] == "127.0.0.1:3"
