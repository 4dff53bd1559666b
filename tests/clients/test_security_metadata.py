"""ACLs, SCRAM credentials and client quotas by Kafka's tools and librdkafka; they survive kill -9 of every process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

TIMEOUT_S = 20
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
}
ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """Two brokers, whose clients are all super users."""
    directory = tmp_path_factory.mktemp("security")
    with BarnabasCluster(directory, broker_count=2, first_port=0, config=CONFIG) as running:
        yield running


@pytest.fixture
def run(tools: KafkaTools, cluster: BarnabasCluster) -> Run:
    """Runs a tool against the cluster and returns its output."""

    def run_tool(tool: str, *arguments: str) -> str:
        return tools.run(tool, "--bootstrap-server", cluster.bootstrap, *arguments).check().stdout

    return run_tool


def admin_of(cluster: BarnabasCluster, broker_id: int = 0) -> AdminClient:
    node = cluster.nodes[broker_id]
    return AdminClient({"bootstrap.servers": f"{node.host}:{node.port}"})


def results(futures: dict[object, Future[object]]) -> list[object]:
    return [future.result(TIMEOUT_S) for future in futures.values()]


def acl(name: str, principal: str = "User:alice") -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.PREFIXED,
        principal,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def acls(admin: AdminClient, chosen: AclBindingFilter = ANY_ACL) -> set[AclBinding]:
    return set(admin.describe_acls(chosen).result(TIMEOUT_S))


def users(admin: AdminClient) -> dict[str, list[tuple[str, int]]]:
    described = admin.describe_user_scram_credentials().result(TIMEOUT_S)
    return {
        name: [(info.mechanism.name, info.iterations) for info in user.scram_credential_infos]
        for name, user in described.items()
    }


def test_librdkafka_creates_describes_and_deletes_acls(cluster: BarnabasCluster) -> None:
    admin = admin_of(cluster)
    wanted = {acl("orders"), acl("orders", "User:bob"), acl("other")}
    results(admin.create_acls(list(wanted)))
    assert acls(admin) == wanted, "the broker that answered has them"
    eventually("the other broker has them", lambda: acls(admin_of(cluster, 1)) == wanted)
    chosen = AclBindingFilter(
        ResourceType.TOPIC, "orders", ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    (deleted,) = results(admin.delete_acls([chosen]))
    assert set(deleted) == {acl("orders"), acl("orders", "User:bob")}
    assert acls(admin) == {acl("other")}
    results(admin.delete_acls([ANY_ACL]))
    assert acls(admin) == set()


def test_librdkafka_sets_describes_and_deletes_scram_credentials(cluster: BarnabasCluster) -> None:
    admin = admin_of(cluster)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    results(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, b"password")]))
    assert users(admin) == {"alice": [("SCRAM_SHA_512", 8192)]}
    eventually("the other broker has it", lambda: "alice" in users(admin_of(cluster, 1)))
    deletion = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512)
    results(admin.alter_user_scram_credentials([deletion]))
    assert users(admin) == {}


def test_kafka_acls_adds_lists_and_removes(run: Run) -> None:
    allow = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    assert "Adding ACLs for resource" in run("kafka-acls", "--add", *allow)
    listed = run("kafka-acls", "--list", "--topic", "orders")
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
    run("kafka-acls", "--remove", "--force", *allow)
    assert "User:alice" not in run("kafka-acls", "--list")


def test_kafka_configs_sets_and_removes_users_passwords_and_quotas(run: Run) -> None:
    user = ("--entity-type", "users", "--entity-name", "carol")
    run("kafka-configs", "--alter", *user, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    run("kafka-configs", "--alter", *user, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    described = run("kafka-configs", "--describe", *user)
    assert "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-256=iterations=8192" in described
    quota = "Quota configs for user-principal 'carol' are "
    limits = next(line for line in described.splitlines() if line.startswith(quota)).removeprefix(quota)
    assert sorted(limits.split(", ")) == ["consumer_byte_rate=2048.0", "producer_byte_rate=1024.0"]
    run("kafka-configs", "--alter", *user, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    run("kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256")
    assert run("kafka-configs", "--describe", *user).strip() == ""


def test_kafka_configs_sets_quotas_of_defaults_clients_and_addresses(run: Run) -> None:
    for entity, limit in (
        (("--entity-type", "clients", "--entity-default"), "request_percentage=50"),
        (("--entity-type", "ips", "--entity-name", "127.0.0.1"), "connection_creation_rate=100"),
    ):
        run("kafka-configs", "--alter", *entity, "--add-config", limit)
        assert f"are {limit}.0" in run("kafka-configs", "--describe", *entity)
        run("kafka-configs", "--alter", *entity, "--delete-config", limit.partition("=")[0])
        assert run("kafka-configs", "--describe", *entity).strip() == ""


def test_an_anonymous_client_gets_no_delegation_token(
    tools: KafkaTools, cluster: BarnabasCluster, tmp_path: Path
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("")
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(settings))
    result = tools.run("kafka-delegation-tokens", *where, "--create", "--max-life-time-period", "-1")
    assert result.exit_code != 0
    assert "Delegation Token requests are not allowed" in result.stdout + result.stderr


def test_everything_survives_the_end_of_every_process(cluster: BarnabasCluster) -> None:
    admin = admin_of(cluster)
    results(admin.create_acls([acl("kept")]))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    results(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("kept", info, b"password")]))
    for node in (cluster.controller, *cluster.brokers):
        cluster.stop_node(node, signal.SIGKILL)
    for node in (cluster.controller, *cluster.brokers):
        cluster.start_node(node)
    cluster.await_ready()
    for broker_id in cluster.broker_ids:
        assert acls(admin_of(cluster, broker_id)) == {acl("kept")}
        assert users(admin_of(cluster, broker_id)) == {"kept": [("SCRAM_SHA_256", 4096)]}
