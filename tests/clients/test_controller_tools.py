"""Apache Kafka's tools that ask a controller itself (`--bootstrap-controller`, KIP-919): configs, loggers, ACLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.config.checks import STANDARD_AUTHORIZER
from tests.clients.test_feature_levels import CONTROLLER_ID
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_tools import KafkaTools

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
LOGGER = "barnabas.controller"


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The option that names the controller of a cluster with ACLs."""
    with BarnabasCluster(tmp_path_factory.mktemp("c"), broker_count=1, first_port=0, config=SETTINGS) as cluster:
        yield "--bootstrap-controller", cluster.nodes[CONTROLLER_ID].controller_address


def test_configs_of_the_controller(controller: tuple[str, str], tools: KafkaTools) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", str(CONTROLLER_ID))
    tools.run("kafka-configs", *controller, "--alter", *entity, "--add-config", "log.retention.ms=5000").check()
    described = tools.run("kafka-configs", *controller, "--describe", "--all", *entity).check().stdout
    found = {text.partition("=")[0]: text for text in map(str.strip, described.splitlines())}
    assert "synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=5000" in found["log.retention.ms"]
    assert f"synonyms={{STATIC_BROKER_CONFIG:node.id={CONTROLLER_ID}" in found["node.id"]


def test_loggers_of_the_controller(controller: tuple[str, str], tools: KafkaTools) -> None:
    entity = ("--entity-type", "broker-loggers", "--entity-name", str(CONTROLLER_ID))
    tools.run("kafka-configs", *controller, "--alter", *entity, "--add-config", f"{LOGGER}=DEBUG").check()
    described = tools.run("kafka-configs", *controller, "--describe", *entity).check().stdout
    assert f"{LOGGER}=DEBUG" in described


def test_acls(controller: tuple[str, str], tools: KafkaTools) -> None:
    rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    tools.run("kafka-acls", *controller, "--add", *rule).check()
    listed = tools.run("kafka-acls", *controller, "--list").check().stdout
    assert "ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)" in listed
    assert "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)" in listed


def test_the_clusters_id_and_its_controllers(controller: tuple[str, str], tools: KafkaTools) -> None:
    assert "Cluster ID: " in tools.run("kafka-cluster", "cluster-id", *controller).check().stdout
    listed = tools.run("kafka-cluster", "list-endpoints", *controller).check().stdout
    assert listed.splitlines()[-1].split()[:3] == [str(CONTROLLER_ID), *controller[1].split(":")]
