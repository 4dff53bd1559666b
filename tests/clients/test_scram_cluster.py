"""A cluster whose every connection is SCRAM: users, rights and delegation tokens, in effect at once and for good."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.protocol.messages import k49_alter_client_quotas as quota_wire
from barnabas.protocol.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.k48_describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.support.access import secured
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.scram_cluster import ADMIN, ADMIN_PASSWORD, BROKERS, ITERATIONS, SASL, ScramCluster, login
from tests.support.waiting import eventually

TIMEOUT_S = 20
TOPIC = "orders"
QUOTA = 1_000_000.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScramCluster]:
    """Two brokers with a topic."""
    with ScramCluster(tmp_path_factory.mktemp("scram")) as running:
        admin = AdminClient(running.librdkafka())
        admin.create_topics([NewTopic(TOPIC, 2, 2)])[TOPIC].result(TIMEOUT_S)
        yield running


def set_password(cluster: ScramCluster, user: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    admin = AdminClient(cluster.librdkafka())
    admin.alter_user_scram_credentials([change])[user].result(TIMEOUT_S)


def may_write(user: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )


def allow(cluster: ScramCluster, acl: AclBinding) -> None:
    admin = AdminClient(cluster.librdkafka())
    admin.create_acls([acl])[acl].result(TIMEOUT_S)


def errors_of_a_record(cluster: ScramCluster, user: str, password: str, partition: int) -> list[int]:
    """Produce a record; return the codes of the errors, of the client or of the record. Empty if it is written."""
    errors: list[int] = []
    settings = cluster.librdkafka(user, password, **{"message.timeout.ms": 10_000})
    producer = Producer({**settings, "error_cb": lambda error: errors.append(error.code())})

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error.code())

    producer.produce(TOPIC, b"x", partition=partition, on_delivery=delivered)
    eventually("an answer", lambda: producer.flush(0.2) == 0 or KafkaError._AUTHENTICATION in errors)
    producer.purge()
    return errors


def test_a_user_logs_in_and_writes_until_the_right_is_revoked(cluster: ScramCluster) -> None:
    set_password(cluster, "alice", "a-secret")
    denied = [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    eventually("all brokers know her", lambda: errors_of_a_record(cluster, "alice", "a-secret", 0) == denied)
    allow(cluster, may_write("alice"))
    for partition in range(2):  # each broker leads one
        eventually("the right", lambda p=partition: errors_of_a_record(cluster, "alice", "a-secret", p) == [])
    chosen = AclBindingFilter(
        ResourceType.TOPIC, TOPIC, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    admin = AdminClient(cluster.librdkafka())
    admin.delete_acls([chosen])[chosen].result(TIMEOUT_S)
    for partition in range(2):
        eventually(
            "the refusal",
            lambda p=partition: errors_of_a_record(cluster, "alice", "a-secret", p) == denied,
        )


def test_a_password_is_changed_and_removed(cluster: ScramCluster) -> None:
    set_password(cluster, "bob", "old")
    set_password(cluster, "bob", "new")
    allow(cluster, may_write("bob"))

    def is_refused(password: str) -> bool:
        return KafkaError._AUTHENTICATION in errors_of_a_record(cluster, "bob", password, 0)

    eventually("the old one is refused", lambda: is_refused("old"))
    eventually("the new one is accepted", lambda: errors_of_a_record(cluster, "bob", "new", 0) == [])
    removal = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
    admin = AdminClient(cluster.librdkafka())
    admin.alter_user_scram_credentials([removal])["bob"].result(TIMEOUT_S)
    eventually("the user is refused", lambda: is_refused("new"))


class Remembered:
    """A user with a password, a right, a quota and a delegation token, of whom every broker must know."""

    def __init__(self, cluster: ScramCluster, user: str) -> None:
        self._cluster = cluster
        self._user = user
        self._password = f"{user}'s secret"
        set_password(cluster, user, self._password)
        allow(cluster, may_write(user))
        self._set_quota()
        eventually("she can log in", lambda: errors_of_a_record(cluster, user, self._password, 0) == [])
        with self._connection(1, user, self._password) as connection:
            token = connection.send(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert token.error_code == 0
        self._token = (token.token_id, base64.b64encode(token.hmac).decode())
        self.check()

    def check(self) -> None:
        """Wait until both brokers know of everything; each leads a partition."""
        for partition in range(2):
            eventually(
                "a record", lambda p=partition: errors_of_a_record(self._cluster, self._user, self._password, p) == []
            )
        for broker_id in BROKERS:
            eventually("a login with the token", lambda b=broker_id: self._accepts_token(b))
            eventually("the quota", lambda b=broker_id: self._quotas(b) == [("consumer_byte_rate", QUOTA)])

    def _connection(self, broker_id: int, user: str, password: str, more: str = "") -> NodeConnection:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": SASL,
            "sasl.jaas.config": login(user, password, more),
        }
        return NodeConnection("127.0.0.1", self._cluster.ports[broker_id], security=secured(settings))

    def _accepts_token(self, broker_id: int) -> bool:
        with self._connection(broker_id, *self._token, ' tokenauth="true"') as connection:
            try:
                connection.connect()
            except NodeConnectionError:
                return False
            return True

    def _set_quota(self) -> None:
        entity = quota_wire.EntityData(entity_type="user", entity_name=self._user)
        limit = quota_wire.OpData(key="consumer_byte_rate", value=QUOTA, remove=False)
        request = quota_wire.AlterClientQuotasRequest(
            entries=[quota_wire.RequestEntryData(entity=[entity], ops=[limit])], validate_only=False
        )
        with self._connection(1, ADMIN, ADMIN_PASSWORD) as connection:
            assert [entry.error_code for entry in connection.send(request, 1).entries] == [0]

    def _quotas(self, broker_id: int) -> list[tuple[str, float]]:
        wanted = ComponentData(entity_type="user", match_type=0, match=self._user)
        with self._connection(broker_id, ADMIN, ADMIN_PASSWORD) as connection:
            try:
                answer = connection.send(DescribeClientQuotasRequest(components=[wanted], strict=True), 1)
            except NodeConnectionError:
                return []
        return [(value.key, value.value) for entry in answer.entries or () for value in entry.values]


@pytest.mark.parametrize("names", [("broker-1",), ("controller",), ("controller", "broker-1")])
def test_a_killed_process_forgets_nothing(cluster: ScramCluster, names: tuple[str, ...]) -> None:
    """Its place is taken by a new process; what is changed after that is in effect too."""
    user = f"kim-{len(names)}-{names[0]}"
    known = Remembered(cluster, user)
    cluster.kill(*names)
    cluster.start_processes(*names)
    known.check()
    Remembered(cluster, f"{user}-later")
    known.check()


def test_everything_survives_the_end_of_every_process(cluster: ScramCluster) -> None:
    known = Remembered(cluster, "carol")
    cluster.kill()
    cluster.start()
    known.check()


def test_brokers_know_everything_without_a_controller(cluster: ScramCluster) -> None:
    known = Remembered(cluster, "lee")
    cluster.kill("controller")
    known.check()
    cluster.start_processes("controller")
    known.check()


def test_a_lost_controller_is_rebuilt_with_all_users_and_rights(cluster: ScramCluster) -> None:
    known = Remembered(cluster, "erin")
    cluster.stop_brokers()  # each writes a copy of the metadata
    cluster.kill()
    cluster.start_processes("broker-1", "broker-2")
    shutil.rmtree(cluster.directory / "controller-data")
    addresses = ",".join(f"127.0.0.1:{port}" for port in cluster.node_ports.values())
    command = [sys.executable, "-P", "-m", "barnabas.cli", "controller", "recover"]
    command += [str(cluster.directory / "controller.properties"), "--from-brokers", addresses]

    def recovered() -> bool:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "does not answer" in result.stderr or result.returncode == 0, result.stderr
        assert "set them again" not in result.stdout
        return result.returncode == 0

    eventually("the metadata log", recovered)
    cluster.start_processes("controller")
    cluster.await_ready()
    known.check()


def token_of(output: str) -> tuple[str, str]:
    """Return the id and the HMAC of the first token in the output of kafka-delegation-tokens."""
    line = next(line for line in output.splitlines() if re.match(r"\S{22}\s+\S{80,}", line))
    token_id, hmac, *_ = line.split()
    return token_id, hmac


def test_a_delegation_token_is_created_used_renewed_and_expired(tools: KafkaTools, cluster: ScramCluster) -> None:
    settings = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(cluster.java()))

    def tokens(*arguments: str) -> str:
        return tools.run("kafka-delegation-tokens", *settings, *arguments).check().stdout

    token_id, hmac = token_of(tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:dave"))
    assert token_of(tokens("--describe", "--owner-principal", "User:admin")) == (token_id, hmac)

    client = cluster.java(token_id, hmac, ' tokenauth="true"')
    as_token = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(client))
    assert TOPIC in tools.run("kafka-topics", *as_token, "--list").check().stdout.split()
    refused = tools.run("kafka-delegation-tokens", *as_token, "--create", "--max-life-time-period", "-1")
    assert "Delegation Token requests are not allowed" in refused.stdout + refused.stderr

    assert "Completed renew operation" in tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    cluster.kill()
    cluster.start()
    assert TOPIC in tools.run("kafka-topics", *as_token, "--list").check().stdout.split()
    assert "Completed expire operation" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in tokens("--describe")
    refused = tools.run("kafka-topics", *as_token, "--list")
    assert "Authentication failed" in refused.stdout + refused.stderr
