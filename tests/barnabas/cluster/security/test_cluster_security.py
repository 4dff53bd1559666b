"""How a local cluster is secured."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from barnabas.cluster import ClusterError, LocalCluster, Node
from barnabas.cluster.security.cluster_security import PROTOCOLS, ClusterSecurity, parse_users
from barnabas.config.config import Config

NOW_MS = 1_900_000_000_000


def secured(directory: Path, protocol: str, **users: str) -> ClusterSecurity:
    """The security of a cluster in a directory."""
    return ClusterSecurity(directory, protocol, users, NOW_MS)


def node(directory: Path, role: str = "broker", node_id: int = 0) -> Node:
    """A node without a process."""
    return Node(role, node_id, 1, 2, directory / f"{role}-{node_id}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_listener_is_left_in_plaintext(tmp_path: Path, protocol: str) -> None:
    security = secured(tmp_path, protocol, alice="secret")
    cluster = LocalCluster(tmp_path, 2, 0, security=security)
    cluster.plan()
    try:
        for each in cluster.nodes.values():
            config = Config.from_properties(cluster.properties(each), role=each.role)
            names = {listener.name for listener in config.listeners_parsed}
            assert names == ({"CONTROLLER"} if each.role == "controller" else {protocol, "INTERNAL"})
            assert "PLAINTEXT" not in config.listener_protocols.values()
            assert config.listener_protocols["INTERNAL"] == config.listener_protocols["CONTROLLER"]
    finally:
        cluster.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nodes_and_admin_are_super_users(tmp_path: Path, protocol: str) -> None:
    security = secured(tmp_path, protocol, alice="secret")
    found = security.properties(node(tmp_path), ["controller-100", "broker-0"], "INTERNAL")["super.users"]
    between_nodes = "User:node" if protocol == "SASL_PLAINTEXT" else "User:controller-100;User:broker-0"
    assert found == f"User:admin;{between_nodes}"


def test_between_nodes_both_ends_show_certificates(tmp_path: Path) -> None:
    properties = secured(tmp_path, "SASL_SSL").properties(node(tmp_path), ["broker-0"], "INTERNAL")
    assert properties["listener.name.internal.ssl.client.auth"] == "required"
    assert properties["listener.name.controller.ssl.client.auth"] == "required"
    assert "listener.name.sasl_ssl.ssl.client.auth" not in properties


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_settings_of_users_are_files_for_their_owner_alone(tmp_path: Path, protocol: str) -> None:
    security = secured(tmp_path, protocol, alice="secret")
    security.prepare([node(tmp_path), node(tmp_path, "controller", 100)], "127.0.0.1:9092")
    for user in ("alice", "admin"):
        directory = security.settings_file(user).parent
        files = {path.name for path in directory.iterdir()}
        assert {"client.properties", "librdkafka.conf", "kafka_python.json", "spark.json"} <= files
        assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
        assert json.loads((directory / "kafka_python.json").read_text())["security_protocol"] == protocol


def test_the_next_start_keeps_passwords_and_takes_new_users(tmp_path: Path) -> None:
    first = secured(tmp_path, "SASL_SSL", alice="secret")
    second = secured(tmp_path, "SASL_SSL", bob="word")
    assert second.users == {**first.users, "bob": "word"}
    assert second.node_login() == first.node_login()
    assert secured(tmp_path, "SASL_SSL", alice="new").users["alice"] == "new"


def test_users_are_created_once(tmp_path: Path) -> None:
    first = secured(tmp_path, "SASL_SSL", alice="secret")
    assert first.users_to_create() == first.users
    assert secured(tmp_path, "SASL_SSL").users_to_create() == first.users  # the first start came to nothing
    first.users_created()
    assert first.users_to_create() == {}
    assert secured(tmp_path, "SASL_SSL").users_to_create() == {}
    again = secured(tmp_path, "SASL_SSL", alice="new", bob="word")
    assert again.users_to_create() == {"alice": "new", "bob": "word"}


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", 'a"', "broker-0", "controller-100", "node", "1a"])
def test_a_name_that_would_be_dangerous_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClusterError, match="cannot be a user here"):
        ClusterSecurity(tmp_path, "SSL", {name: "secret"}, NOW_MS)


def test_an_unknown_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="TLS is no security protocol: it can be SSL, SASL_PLAINTEXT, SASL_SSL"):
        secured(tmp_path, "TLS")


def test_listeners_are_not_for_the_configuration(tmp_path: Path) -> None:
    cluster = LocalCluster(
        tmp_path, 1, 0, {"listeners": "PLAINTEXT://127.0.0.1:19092"}, security=secured(tmp_path, "SSL")
    )
    with pytest.raises(ClusterError, match="listeners cannot be set with --security"):
        cluster.plan()


def test_users_of_the_command_line() -> None:
    assert parse_users("alice:se:cret, bob:x,") == {"alice": "se:cret", "bob": "x"}
    with pytest.raises(ClusterError, match="alice has no password"):
        parse_users("alice")


def test_a_file_of_users_that_a_crash_left_empty_is_one_line(tmp_path: Path) -> None:
    secured(tmp_path, "SASL_SSL", alice="secret")
    (tmp_path / "security" / "users.json").write_text("")
    with pytest.raises(ClusterError, match=r"users\.json cannot be read \(.*\): remove it"):
        secured(tmp_path, "SASL_SSL")
