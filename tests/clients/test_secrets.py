"""Secrets of every kind are used on a running cluster, with a full request log; then nothing that it shows has one."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from barnabas.cli.cluster_nodes import ask_any
from barnabas.cluster import Node
from barnabas.common.pages.page_client import ask
from barnabas.common.processes.ports import free_ports
from barnabas.config.secrets.providers import PACKAGE
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.certificates import Authority
from tests.support.cluster import BarnabasCluster

TIMEOUT_S = 30
MARK = "s3cret"  # in every secret below
LOGGER, BROKER = 8, 4
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret-plain";'


class SecureCluster(BarnabasCluster):
    """A cluster whose controller, which has no SASL listener, does not get the settings of one."""

    def properties(self, node: Node) -> dict[str, str]:
        found = super().properties(node)
        return {key: text for key, text in found.items() if node.role == "broker" or ".secure." not in key}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """One broker: a plain listener for the others, one with SASL_SSL; secrets from a file, and in the properties."""
    base = tmp_path_factory.mktemp("secrets")
    identity = Authority().issue("broker")
    identity.write_pkcs12(base / "keys.p12", "s3cret-store")
    (base / "secrets.properties").write_text("store=s3cret-store\nplain=" + JAAS.replace("\\", "\\\\") + "\n")
    plain, secure = free_ports(2)
    protocols = ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SECURE:SASL_SSL")
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}",
        "listener.security.protocol.map": ",".join(protocols),
        "inter.broker.listener.name": "PLAINTEXT",
        "config.providers": "file",
        "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(base / "keys.p12"),
        "ssl.keystore.password": f"${{file:{base}/secrets.properties:store}}",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.secure.plain.sasl.jaas.config": f"${{file:{base}/secrets.properties:plain}}",
        "delegation.token.secret.key": "s3cret-tokens",
        "barnabas.pages.auth.token": "s3cret-page",
        "barnabas.faults.enable": "true",
        "barnabas.faults.recorder.capacity": "1000",
    }
    with SecureCluster(base / "data", broker_count=1, first_port=0, config=config) as running:
        yield running


def secure_client(cluster: BarnabasCluster, mechanism: str, password: str) -> AdminClient:
    port = next(
        text.rpartition(":")[2]
        for text in cluster.properties(cluster.nodes[0])["listeners"].split(",")
        if text.startswith("SECURE")
    )
    return AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_SSL",
            "enable.ssl.certificate.verification": "false",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
            "log_level": 0,
        }
    )


def alter(cluster: BarnabasCluster, resource_type: int, **texts: str) -> int:
    """Set configs of broker 0, as kafka-configs does; return the error code."""
    configs = [AlterableConfig(name=name, config_operation=0, value=text) for name, text in texts.items()]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name="0", configs=configs)
    (answer,) = ask_any(cluster.bootstrap, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return int(answer.error_code)


@pytest.fixture(scope="module")
def used(cluster: BarnabasCluster) -> AdminClient:
    """Use every kind of secret; return a client of the plain listener."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert alter(cluster, LOGGER, **{"kafka.request.logger": "DEBUG"}) == 0
    secure_client(cluster, "PLAIN", "s3cret-plain").list_topics(timeout=TIMEOUT_S)
    with pytest.raises(KafkaException):
        secure_client(cluster, "PLAIN", "s3cret-wrong").list_topics(timeout=3)
    credential = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"s3cret-scram", b"s3cret-salt"
    )
    client.alter_user_scram_credentials([credential])["alice"].result(TIMEOUT_S)
    secure_client(cluster, "SCRAM-SHA-256", "s3cret-scram").list_topics(timeout=TIMEOUT_S)
    assert alter(cluster, BROKER, **{"vendor.api.key": "s3cret-vendor"}) == 0
    alter(cluster, BROKER, **{"listener.name.secure.ssl.keystore.password": "s3cret-other"})  # it does not fit
    alter(cluster, BROKER, **{"listener.name.secure.ssl.keystore.password": "s3cret-store"})
    secret = ConfigEntry("vendor.password", "s3cret-topic", incremental_operation=AlterConfigOpType.SET)
    (changed,) = client.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[secret])]
    ).values()
    with pytest.raises(KafkaException):
        changed.result(TIMEOUT_S)
    client.create_topics([NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
    return client


def found_in(content: bytes) -> list[bytes]:
    """The secrets in some output, plain or in base 64."""
    encoded = [base64.b64encode(b"x" * shift + MARK.encode())[2 * bool(shift) : -4] for shift in range(3)]
    return [form for form in (MARK.encode(), *encoded) if form in content]


def test_the_search_finds_secrets() -> None:
    assert found_in(b"a s3cret-b")
    assert all(found_in(base64.b64encode(b"x" * shift + b"s3cret-scram")) for shift in range(3))


@pytest.mark.usefixtures("used")
def test_logs_have_no_secret(cluster: BarnabasCluster) -> None:
    for node in cluster.nodes.values():
        content = node.log_file.read_bytes()
        assert found_in(content) == [], node.name
    broker = cluster.nodes[0].log_file.read_bytes()
    for name in (b"ALTER_USER_SCRAM_CREDENTIALS", b"INCREMENTAL_ALTER_CONFIGS"):
        assert name in broker  # the requests themselves were logged
    assert b'"name":"vendor.api.key","configOperation":0,"value":"[hidden]"' in broker


@pytest.mark.usefixtures("used")
def test_pages_have_no_secret(cluster: BarnabasCluster) -> None:
    for node in cluster.nodes.values():
        for path in ("/metrics", "/live.json?limit=1000", "/live", "/recorder", "/faults"):
            answer = ask(node.host, node.metrics_port, "GET", path, cluster.page_access, timeout_s=TIMEOUT_S)
            assert answer.status == 200
            assert found_in(answer.body) == [], (node.name, path)


def test_descriptions_have_no_secret(used: AdminClient) -> None:
    (future,) = used.describe_configs([ConfigResource(ResourceType.BROKER, "0")]).values()
    entries = future.result(TIMEOUT_S)
    for key in ("vendor.api.key", "ssl.keystore.password", "listener.name.secure.plain.sasl.jaas.config"):
        assert (entries[key].value, entries[key].is_sensitive) == (None, True)
        assert all(synonym.value is None for synonym in entries[key].synonyms.values())
    assert not any(MARK in str(entry.value) for entry in entries.values())


@pytest.mark.usefixtures("used")
def test_commands_show_no_secret(cluster: BarnabasCluster) -> None:
    (segment,) = (cluster.controller.directory / "data" / "__cluster_metadata-0").glob("*0.log")
    for command in (
        ["config", "show", "--broker", "0", "--all", "--bootstrap", cluster.bootstrap],
        ["dump-log", "--records", str(segment)],
    ):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "barnabas.cli", *command], capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 0
        assert b"vendor.api.key" in done.stdout
        assert found_in(done.stdout + done.stderr) == []


@pytest.mark.usefixtures("used")
def test_the_list_of_processes_has_no_secret(cluster: BarnabasCluster) -> None:
    for node in cluster.nodes.values():
        assert node.child is not None
        assert found_in(Path(f"/proc/{node.child.pid}/cmdline").read_bytes()) == []


@pytest.mark.usefixtures("used")
def test_files_with_secrets_are_not_for_everybody(cluster: BarnabasCluster) -> None:
    for file in cluster.directory.rglob("*"):
        if file.is_file() and found_in(file.read_bytes()):
            assert file.stat().st_mode & 0o007 == 0, file
