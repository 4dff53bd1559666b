"""How a local cluster is secured."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509

from barnabas.client.security import security_of_brokers
from barnabas.cluster import ClusterError, LocalCluster, Node
from barnabas.cluster.security.authority import CERTIFICATE_DAYS, RENEWAL_DAYS
from barnabas.cluster.security.cluster_security import PROTOCOLS, ClusterSecurity, parse_users
from barnabas.common.clock import FakeClock
from barnabas.common.pages.page_access import TOKEN_FILE, TOKEN_KEY, USERS_KEY, Access
from barnabas.config.config import Config
from barnabas.security.tls.endpoints import TlsEndpoints

NOW_MS = 1_900_000_000_000
DAY_MS = 86_400_000


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
    security = secured(tmp_path, "SASL_SSL")
    for each, listener in ((node(tmp_path), "internal"), (node(tmp_path, "controller", 100), "controller")):
        properties = security.properties(each, ["broker-0"], "INTERNAL")
        required = {key for key, text in properties.items() if text == "required"}
        assert required == {f"listener.name.{listener}.ssl.client.auth"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_controller_knows_the_listener_between_brokers(tmp_path: Path, protocol: str) -> None:
    """`barnabas controller recover` connects to it, by the controller's file."""
    cluster = LocalCluster(tmp_path, 1, 0, security=secured(tmp_path, protocol))
    cluster.plan()
    try:
        config = Config.from_properties(cluster.properties(cluster.controller), role="controller")
        clock = FakeClock(wall_ms=NOW_MS)
        security = security_of_brokers(TlsEndpoints(config.originals, clock.wall_ms), config, clock)
        assert security is not None
        assert (security.listener_name, security.protocol) == ("INTERNAL", config.listener_protocols["CONTROLLER"])
    finally:
        cluster.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_process_gets_settings_without_effect(
    tmp_path: Path, protocol: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.config.config._warned", set())
    cluster = LocalCluster(tmp_path, 1, 0, security=secured(tmp_path, protocol, alice="secret"))
    cluster.plan()
    try:
        for each in cluster.nodes.values():
            Config.from_properties(cluster.properties(each), role=each.role)
    finally:
        cluster.stop()
    assert caplog.text == ""


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


def test_the_secret_of_false_salts_is_kept_and_the_same_on_all_nodes(tmp_path: Path) -> None:
    def key(protocol: str, each: Node) -> str | None:
        return secured(tmp_path, protocol).properties(each, ["broker-0"], "INTERNAL").get("delegation.token.secret.key")

    nodes = node(tmp_path), node(tmp_path, "controller", 100)
    (found,) = {key(protocol, each) for protocol in ("SASL_SSL", "SASL_PLAINTEXT") for each in nodes}
    assert found is not None
    assert len(found) >= 24
    assert key("SSL", nodes[0]) is None, "nobody logs in by SCRAM"


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pages_ask_for_a_token_and_have_tls_where_listeners_have_it(tmp_path: Path, protocol: str) -> None:
    security = secured(tmp_path, protocol)
    cluster = LocalCluster(tmp_path, 1, 0, security=security)
    cluster.plan()
    try:
        token = (security.directory / TOKEN_FILE).read_text()
        assert stat.S_IMODE((security.directory / TOKEN_FILE).stat().st_mode) == 0o600
        for each in cluster.nodes.values():
            config = Config.from_properties(cluster.properties(each), role=each.role)
            assert config.barnabas_pages_auth_token.value == token
            own = str(security.directory / f"{each.name}.pem") if security.is_encrypted else None
            assert config.barnabas_pages_ssl_keystore_location == own
        ca = str(security.directory / "ca.pem") if security.is_encrypted else ""
        scheme = "https" if security.is_encrypted else "http"
        assert cluster.page_access == Access(f"Bearer {token}", scheme, ca)
    finally:
        cluster.stop()
    certificate = security.control_certificate()
    assert certificate is None or "PRIVATE KEY" in certificate.read_text()
    assert (certificate is not None) == security.is_encrypted


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_certificates_are_issued_again_before_they_expire(tmp_path: Path, protocol: str) -> None:
    clock = FakeClock(wall_ms=NOW_MS)
    security = secured(tmp_path, protocol, alice="secret")
    cluster = LocalCluster(tmp_path, 1, 0, clock=clock, security=security)
    cluster.plan()

    def certificates() -> dict[str, bytes]:
        paths = [path for path in security.directory.rglob("*.pem") if not path.name.startswith("ca")]
        return {path.name: path.read_bytes() for path in paths}

    try:
        first = certificates()
        assert ("supervisor.pem" in first) == security.is_encrypted
        clock.advance_ms((CERTIFICATE_DAYS - RENEWAL_DAYS) * DAY_MS - 1)
        assert not cluster.renew_certificates()
        assert certificates() == first
        clock.advance_ms(1)
        assert cluster.renew_certificates() == security.is_encrypted
        second = certificates()
        assert all(first[name] != second[name] for name in first)
        for chain in second.values():
            end = x509.load_pem_x509_certificate(chain).not_valid_after_utc
            assert end.timestamp() * 1000 == clock.wall_ms() + CERTIFICATE_DAYS * DAY_MS
        assert not cluster.renew_certificates(), "not again"
    finally:
        cluster.stop()


def test_certificates_that_could_not_be_renewed_are_still_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk lets some files be written: the next try writes all."""
    security, written = ClusterSecurity(tmp_path, "SSL", {}, 0), []
    due_ms = (CERTIFICATE_DAYS - RENEWAL_DAYS) * DAY_MS
    issue = security._authority.issue

    def fail(file: str, *arguments: object, **named: object) -> Path:
        written.append(file)
        if len(written) == 2:
            raise OSError("No space left on device")
        return issue(file, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(security._authority, "issue", fail)
    with pytest.raises(OSError, match="No space left"):
        security.renew([], "h:1", due_ms)
    assert len(written) == 2
    assert security.renew([], "h:1", due_ms)
    assert set(written[:2]) < set(written[2:])
    assert not security.renew([], "h:1", due_ms)


def test_the_next_start_keeps_the_token_of_the_pages(tmp_path: Path) -> None:
    first, second = (secured(tmp_path, "SSL").page_properties("broker-0", {}) for _ in range(2))
    assert first == second
    (tmp_path / "security" / TOKEN_FILE).write_text("")  # what a crash of the machine can leave
    third = secured(tmp_path, "SSL").page_properties("broker-0", {})
    assert third[TOKEN_KEY] not in ("", first[TOKEN_KEY])


def test_the_configuration_replaces_what_protects_pages(tmp_path: Path) -> None:
    security = secured(tmp_path, "SSL")
    for own in (TOKEN_KEY, USERS_KEY):
        found = security.page_properties("broker-0", {own: "alice:secret"})
        assert not {TOKEN_KEY, USERS_KEY} & found.keys()
        assert found["barnabas.pages.ssl.keystore.type"] == "PEM"
    assert security.page_properties("broker-0", {"barnabas.pages.ssl.keystore.location": "/k.p12"}).keys() == {
        TOKEN_KEY
    }
    config = {TOKEN_KEY: "mine"}
    assert LocalCluster(tmp_path, 1, 0, config, security=security).page_access.credential == "Bearer mine"
