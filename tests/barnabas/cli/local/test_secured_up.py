"""`barnabas up --security`: a secured cluster, its users, and commands and clients with the settings that it writes.

Also tests cluster/security/node_client.py.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramMechanism, UserScramCredentialDeletion
from kafka import KafkaConsumer

from barnabas.cli.address import VARIABLE
from barnabas.cli.local.running import DIRECTORY_VARIABLE
from barnabas.cli.security import command_config
from barnabas.cluster import LocalCluster
from barnabas.cluster.security.client_settings import librdkafka
from barnabas.cluster.security.cluster_security import ClusterSecurity
from barnabas.common.clock import SystemClock
from barnabas.common.pages.page_access import TOKEN_FILE, Access, of_directory
from barnabas.common.pages.page_client import ask
from barnabas.common.processes.cluster_file import read_cluster_file
from tests.barnabas.cli.conftest import Barnabas
from tests.support.kafka.kafka_tools import KafkaTools

USERS = 'alice:se\\cr"et,bob:w0rd'
UP = [sys.executable, "-P", "-m", "barnabas.cli", "up", "--ephemeral", "--brokers", "1", "--users", USERS]
PROTOCOLS = ["ssl", "sasl_ssl", "sasl_plaintext"]


@contextlib.contextmanager
def up(*arguments: str) -> Iterator[dict[str, str]]:
    """`barnabas up --ephemeral`; yields the environment that it prints."""
    command = [*UP, "--print-env", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found: dict[str, str] = {}
        for line in process.stdout:
            name, _, value = line.rstrip("\n").partition("=")
            found[name] = value
            if name == "BARNABAS_READY":
                break
        assert "BARNABAS_READY" in found
        yield found
        process.stdin.close()


@pytest.fixture(scope="module", params=PROTOCOLS)
def secured(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A cluster of each protocol: the environment that describes it."""
    with up("--security", request.param) as found:
        yield found


@pytest.fixture
def environment(secured: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The same, as the environment of commands."""
    monkeypatch.setenv(VARIABLE, secured["BARNABAS_BOOTSTRAP"])
    monkeypatch.setenv(command_config.VARIABLE, secured["BARNABAS_COMMAND_CONFIG"])
    return secured


def settings(environment: dict[str, str], user: str, name: str) -> Any:
    """A user's settings for a client."""
    file = Path(environment["BARNABAS_DATA_DIR"]) / "security" / "users" / user / name
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    return json.loads(text) if name.endswith(".json") else dict(line.split("=", 1) for line in text.splitlines())


def test_commands_connect_as_admin(barnabas: Barnabas, environment: dict[str, str]) -> None:
    assert barnabas("topic", "create", "orders").out == "created orders\n"
    assert ["orders", "1", "1"] in barnabas("topic", "list").rows
    assert barnabas("config", "show", "--broker", "").code == 0
    doctor = barnabas("doctor")
    assert doctor.code == 0
    assert doctor.rows[0][4:6] == ["yes", "-"]
    for node in ("broker-0", "controller-100"):
        by_file = barnabas("doctor", f"{environment['BARNABAS_DATA_DIR']}/{node}/server.properties")
        assert by_file.code == 0, by_file


def test_the_list_of_processes_shows_no_password(environment: dict[str, str]) -> None:
    content = read_cluster_file(Path(environment["BARNABAS_DATA_DIR"]))
    assert content is not None
    pids = [content["supervisor_pid"], *(process["pid"] for process in content["processes"])]
    shown = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
    assert b"--users" in shown[0]
    assert not any(b"se\\cr" in each for each in shown)


def test_a_user_may_do_what_rules_allow(barnabas: Barnabas, environment: dict[str, str]) -> None:
    barnabas("topic", "create", "shared")
    by_librdkafka = settings(environment, "alice", "librdkafka.conf")
    refused = Producer(by_librdkafka).list_topics("shared", timeout=20).topics["shared"].error
    assert refused is not None
    assert refused.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert barnabas("acl", "explain", "alice", "write", "topic:shared").code == 1
    assert barnabas("acl", "add", "alice", "read,write", "topic:shared").code == 0
    assert barnabas("acl", "add", "alice", "read", "group:*").code == 0
    assert barnabas("acl", "explain", "alice", "write", "topic:shared").code == 0
    producer = Producer(by_librdkafka)  # the first one remembers the refusal
    producer.produce("shared", b"value")
    assert producer.flush(20) == 0
    python = settings(environment, "alice", "kafka_python.json")
    consumer = KafkaConsumer(
        "shared", **python, auto_offset_reset="earliest", group_id="readers", consumer_timeout_ms=20_000
    )
    with contextlib.closing(consumer):
        assert next(consumer).value == b"value"


def test_a_reader_without_a_group_needs_the_topic_alone(barnabas: Barnabas, environment: dict[str, str]) -> None:
    barnabas("topic", "create", "alone")
    barnabas("acl", "add", "bob", "read,write", "topic:alone")
    producer = Producer(settings(environment, "bob", "librdkafka.conf"))
    producer.produce("alone", b"value")
    assert producer.flush(20) == 0
    file = f"{environment['BARNABAS_DATA_DIR']}/security/users/bob/client.properties"
    for start in (["-p", "0", "--offset", "0"], ["--from-beginning"]):
        read = barnabas("consume", "alone", *start, "-e", "--command-config", file)
        assert (read.code, read.out) == (0, "value\n"), read.err
    in_group = barnabas("consume", "alone", "--group", "g", "--command-config", file)
    assert (in_group.code, "GROUP_AUTHORIZATION_FAILED" in in_group.err) == (1, True)


def test_kafkas_tools_take_the_same_file(barnabas: Barnabas, environment: dict[str, str], tools: KafkaTools) -> None:
    barnabas("topic", "create", "tools")
    barnabas("acl", "add", "alice", "describe", "topic:tools")
    where = ("--bootstrap-server", environment["BARNABAS_BOOTSTRAP"])
    for user in ("admin", "alice"):
        file = f"{environment['BARNABAS_DATA_DIR']}/security/users/{user}/client.properties"
        listed = tools.run("kafka-topics", *where, "--command-config", file, "--list").check().stdout
        assert "tools" in listed.split()


def status(url: str, access: Access) -> int:
    """The status of a page."""
    parts = urlsplit(url)
    return ask(parts.hostname or "", parts.port or 0, "GET", parts.path, access, timeout_s=20).status


def test_the_pages_of_all_processes_ask_for_the_token(environment: dict[str, str]) -> None:
    directory = Path(environment["BARNABAS_DATA_DIR"])
    access = of_directory(directory)
    token = (directory / "security" / TOKEN_FILE).read_text()
    assert access.credential == f"Bearer {token}"
    pages = [*environment["BARNABAS_METRICS_URLS"].split(","), *environment["BARNABAS_FAULTS_URLS"].split(",")]
    pages.append(f"{environment['BARNABAS_CONTROL_URL']}/nodes")
    is_encrypted = (directory / "security" / "broker-0.pem").exists()
    assert {urlsplit(url).scheme for url in pages} == {"https" if is_encrypted else "http"}
    for url in pages:
        assert status(url, access._replace(credential="")) == http.client.UNAUTHORIZED, url
        assert status(url, access._replace(credential="Bearer wrong")) == http.client.UNAUTHORIZED, url
        assert status(url, access) == http.client.OK, url


def test_commands_find_the_token(
    barnabas: Barnabas, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, environment["BARNABAS_DATA_DIR"])
    monkeypatch.delenv(command_config.VARIABLE)  # that of admin is found, too
    for command in (["top", "--once"], ["explain", "request", "--slowest"], ["topic", "list"]):
        assert barnabas(*command).code == 0, command
    added = barnabas("faults", "add", "api=Produce", "delay_ms=1")
    assert (added.code, added.err) == (0, "")
    assert barnabas("faults", "remove", "--all").code == 0


def test_a_later_start_keeps_what_commands_changed(tmp_path: Path) -> None:
    def start(**users: str) -> AdminClient:
        security = ClusterSecurity(tmp_path, "SASL_PLAINTEXT", users, SystemClock().wall_ms())
        cluster = LocalCluster(tmp_path, 1, 0, security=security)
        running.enter_context(cluster)
        return AdminClient(librdkafka(security.login("admin"), cluster.bootstrap))

    def users_of(admin: AdminClient) -> set[str]:
        return set(admin.describe_user_scram_credentials().result(20))

    with contextlib.ExitStack() as running:
        admin = start(alice="secret", bob="word")
        assert users_of(admin) == {"admin", "alice", "bob"}
        deletions = [
            UserScramCredentialDeletion("alice", mechanism)
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for deletion in deletions:
            admin.alter_user_scram_credentials([deletion])["alice"].result(20)
    with contextlib.ExitStack() as running:
        assert users_of(start(carol="x")) == {"admin", "bob", "carol"}


def test_a_client_without_settings_is_told_what_to_set(
    barnabas: Barnabas, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(command_config.VARIABLE)
    outcome = barnabas("topic", "list")
    assert outcome.code == 1
    assert "--command-config" in outcome.err
    client = AdminClient({"bootstrap.servers": environment["BARNABAS_BOOTSTRAP"], "log_level": 0})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--users", "alice:secret"], 2, "--users needs --security ssl, sasl_plaintext or sasl_ssl"),
        (["--security", "ssl", "--users", "alice"], 1, "--users: alice has no password: write NAME:PASSWORD,..."),
        (["--security", "ssl", "--config", "listeners=SSL://:1"], 1, "listeners cannot be set with --security"),
    ],
)
def test_a_mistake_is_one_line(barnabas: Barnabas, arguments: list[str], code: int, line: str) -> None:
    outcome = barnabas("up", "--ephemeral", *arguments, "--", "true")
    assert outcome.code == code
    assert line in outcome.err
