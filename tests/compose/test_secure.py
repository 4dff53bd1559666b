"""docker-compose.secure.yml: who may connect, what each may do, and where the secrets are."""

from __future__ import annotations

import http.client
import io
import json
import os
import subprocess
import sys
import tarfile

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from barnabas.common.pages.page_access import OPEN, Access
from barnabas.common.pages.page_client import ask
from tests.compose.test_prometheus import has_number, panels, query
from tests.support.docker.compose_cluster import BROKERS, IDS, NODES, SECURE, ComposeCluster, compose_file
from tests.support.history import RECONNECT
from tests.support.waiting import eventually

TIMEOUT_MS = 60_000


def settings(secure: ComposeCluster, user: str) -> dict[str, str]:
    """What a user's file has for librdkafka."""
    text = (secure.directory / "clients" / user / "librdkafka.conf").read_text()
    return dict(line.split("=", 1) for line in text.splitlines())


def page_access(secure: ComposeCluster) -> Access:
    """How the administrator asks for the pages."""
    clients = secure.directory / "clients"
    return Access(f"Bearer {(clients / 'admin' / 'pages_token').read_text()}", "https", str(clients / "ca.pem"))


def cli(secure: ComposeCluster, *arguments: str, input_text: str | None = None) -> str:
    """Run a command in the network, as admin."""
    return secure.compose("run", "--rm", "-T", "cli", *arguments, input_text=input_text)


def refusal(producer: Producer, topic: str) -> KafkaError | None:
    """Produce a record; return why it was refused."""
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    return errors[0]


def login_errors(config: dict[str, str]) -> set[int]:
    """Return the errors of a client that cannot connect."""
    errors: list[KafkaError] = []
    client = AdminClient({**config, "error_cb": errors.append, "log_level": 0})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    eventually("the client names its error", lambda: client.poll(0.1) is not None and errors, TIMEOUT_MS)
    return {error.code() for error in errors}


def test_a_user_logs_in_over_tls_with_the_right_password(secure: ComposeCluster) -> None:
    right = settings(secure, "admin")
    assert right["security.protocol"] == "SASL_SSL"
    assert right["bootstrap.servers"] == secure.bootstrap
    brokers = AdminClient({**right, **RECONNECT}).list_topics(timeout=30).brokers.values()
    assert {f"{broker.host}:{broker.port}" for broker in brokers} == set(secure.bootstrap.split(","))
    assert KafkaError._AUTHENTICATION in login_errors({**right, "sasl.password": "wrong"})
    assert login_errors({"bootstrap.servers": secure.bootstrap}), "without TLS"
    unknown = {key: text for key, text in right.items() if key != "ssl.ca.location"}
    assert KafkaError._SSL in login_errors(unknown)


def test_a_user_may_do_what_rules_allow(secure: ComposeCluster) -> None:
    cli(secure, "topic", "create", "orders")
    cli(secure, "user", "add", "alice", input_text="s3cret-word\n")
    alice = {**settings(secure, "admin"), "sasl.username": "alice", "sasl.password": "s3cret-word", **RECONNECT}
    refused = refusal(Producer({**alice, "message.timeout.ms": 20_000}), "orders")
    assert refused is not None
    assert refused.name() in ("TOPIC_AUTHORIZATION_FAILED", "_MSG_TIMED_OUT")
    cli(secure, "acl", "add", "alice", "write", "topic:orders")
    assert refusal(Producer(alice), "orders") is None


def test_nodes_have_certificates_of_their_own(secure: ComposeCluster) -> None:
    listed = cli(secure, "doctor", "--json", "--bootstrap", "broker-2:29092")
    assert [(row["advertised"], row["problem"]) for row in json.loads(listed)] == [
        (f"{name}:29092", None) for name in BROKERS
    ]
    denied = subprocess.run(
        ["docker", "exec", secure.container("broker-0"), "barnabas", "topic", "list", "--bootstrap", "broker-1:19092"],
        env=dict(secure.engine.environment),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert denied.returncode == 1, "a client without a certificate"


@pytest.mark.parametrize("node", NODES)
def test_pages_ask_for_the_token(secure: ComposeCluster, node: str) -> None:
    host, _, port = secure.page(node).partition(":")

    def status(path: str, access: Access) -> int:
        return ask(host, int(port), "GET", path, access, timeout_s=10).status

    access = page_access(secure)
    for path in ("/metrics", "/live", "/live.json"):
        assert status(path, access._replace(credential="")) == http.client.UNAUTHORIZED
        assert status(path, access._replace(credential="Bearer wrong")) == http.client.UNAUTHORIZED
        assert status(path, access) == http.client.OK
    assert status("/readyz", access._replace(credential="")) == http.client.OK
    with pytest.raises((OSError, http.client.HTTPException)):
        status("/metrics", OPEN)


def test_top_from_this_machine(secure: ComposeCluster) -> None:
    clients = secure.directory / "clients"
    command = [sys.executable, "-P", "-m", "barnabas.cli", "top", "--once", "--json", "--interval", "0.2"]
    command += ["--command-config", str(clients / "admin" / "client.properties")]
    command += ["--page-auth", str(clients / "admin" / "pages_token")]
    environment = {**os.environ, "SSL_CERT_FILE": str(clients / "ca.pem")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert {row["broker"]: row["state"] for row in json.loads(done.stdout)["brokers"]} == dict.fromkeys(
        range(len(BROKERS)), "running"
    )


def test_prometheus_scrapes_with_the_token_and_no_panel_is_empty(secure: ComposeCluster) -> None:
    def up() -> set[str]:
        return {series["metric"]["instance"] for series in query(secure, "up == 1")}

    eventually("all are up", lambda: up() == set(NODES), TIMEOUT_MS)
    cli(secure, "topic", "create", "pictures", "--partitions", "3")
    client = {**settings(secure, "admin"), **RECONNECT}
    producer = Producer(client)
    consumer = Consumer({**client, "group.id": "viewers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["pictures"])

    def is_nothing_empty() -> bool:
        for number in range(300):
            producer.produce("pictures", b"x" * 100, partition=number % 3)
        assert producer.flush(30) == 0
        consumer.consume(300, timeout=1)  # commits too: a group whose lag can be shown
        return all(has_number(query(secure, expression)) for _, expression in panels())

    eventually("every panel shows a number", is_nothing_empty, TIMEOUT_MS)
    consumer.close()


def test_secrets_are_only_in_the_volumes_of_those_who_need_them(secure: ComposeCluster) -> None:
    clients = secure.directory / "clients"
    known = [(clients / user / "password").read_text() for user in ("admin", "pipeline")]
    known += [(clients / "admin" / "pages_token").read_text(), *key_lines(secure)]
    shown = {"ps": subprocess.run(["ps", "axeww"], capture_output=True, text=True, check=True).stdout}
    containers = secure.containers()
    assert {*NODES, "secrets", "users", "prometheus"} <= containers.keys()
    for service, container in containers.items():
        shown[f"inspect {service}"] = secure.engine.docker("inspect", container)
        shown[f"log of {service}"] = logs(secure, container)
    for node in NODES:
        shown[f"environment of {node}"] = secure.execute(node, "cat", "/proc/1/environ", "/proc/1/cmdline")
    assert len(known) > 3
    for where, text in shown.items():
        assert not [secret for secret in known if secret in text], where
    mounts = {service: secure.inspect(service, "{{range .Mounts}}{{.Destination}} {{end}}") for service in containers}
    assert {service for service, paths in mounts.items() if "/secrets/authority" in paths} == {"secrets"}
    assert {service for service, paths in mounts.items() if "/secrets/users" in paths} == {"secrets", "users"}
    assert secure.inspect("secrets", "{{.State.Running}}") == "false"


def key_lines(secure: ComposeCluster) -> list[str]:
    """Return a line of each private key."""
    found = []
    for path in ("/secrets/authority", "/secrets/nodes"):
        archive = subprocess.run(
            ["docker", "cp", f"{secure.container('secrets')}:{path}", "-"],
            env=dict(secure.engine.environment),
            capture_output=True,
            check=True,
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            for member in files.getmembers():
                file = files.extractfile(member)
                text = "" if file is None else file.read().decode()
                if "PRIVATE KEY" in text:
                    assert member.mode & 0o777 == 0o600, member.name
                    found.append(text.splitlines()[1])
    assert len(found) == len(NODES) + 2, "the authority, the nodes, admin"
    return found


def logs(secure: ComposeCluster, container: str) -> str:
    """Return the whole log of a container."""
    environment = dict(secure.engine.environment)
    command = ["docker", "logs", container]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    ).stdout


def test_a_later_start_keeps_what_users_have(secure: ComposeCluster) -> None:
    """`up` issues the certificates again, which running nodes take; passwords that were changed stay."""
    token = page_access(secure)
    issued, running = (secure.inspect(name, "{{.State.StartedAt}}") for name in ("secrets", "broker-0"))
    cli(secure, "user", "add", "pipeline", input_text="changed-word\n")
    try:
        secure.up([*NODES, "users"])
        assert secure.inspect("secrets", "{{.State.StartedAt}}") != issued
        assert secure.inspect("broker-0", "{{.State.StartedAt}}") == running
        changed = {**settings(secure, "pipeline"), "sasl.password": "changed-word"}
        AdminClient({**changed, **RECONNECT}).list_topics(timeout=30)
        host, _, port = secure.page("broker-0").partition(":")
        assert ask(host, int(port), "GET", "/metrics", token, timeout_s=10).status == http.client.OK
    finally:
        cli(secure, "user", "add", "pipeline", input_text=settings(secure, "pipeline")["sasl.password"] + "\n")


def test_the_files_fit_together() -> None:
    plain, secured = (compose_file(name)["services"] for name in SECURE)
    assert set(IDS) <= secured.keys()
    for node in NODES:
        assert "mounted:" in secured[node]["environment"]["KAFKA_BARNABAS_PAGES_AUTH_TOKEN"]
        assert secured[node]["environment"].keys() > {"KAFKA_AUTHORIZER_CLASS_NAME"} - plain[node]["environment"].keys()
