"""Policies in real processes: an operator's classes refuse topics and configs (`create.topic.policy.class.name`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from barnabas.cluster import Node
from tests.support.cluster import BarnabasCluster

TIMEOUT_S = 30
#: What an operator installs.
MODULE = """
class Names:
    def __init__(self, settings):
        pass

    def violation(self, topic):
        return None if topic.name.startswith("team.") else "a topic's name begins with team."

    def close(self):
        pass


class Retention(Names):
    def violation(self, change):
        return "for ever is too long" if change.configs.get("retention.ms") == "-1" else None
"""


class WithPolicies(BarnabasCluster):
    """Its processes find the operator's module; an installed one needs no PYTHONPATH, which servers ignore."""

    def command(self, node: Node) -> list[str]:
        return [part for part in super().command(node) if part != "-E"]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminClient]:
    """A client of a cluster with policies."""
    modules = tmp_path_factory.mktemp("modules")
    (modules / "ourpolicies.py").write_text(MODULE)
    config = {
        "create.topic.policy.class.name": "ourpolicies:Names",
        "alter.config.policy.class.name": "ourpolicies:Retention",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(modules))
        with WithPolicies(tmp_path_factory.mktemp("policies"), 1, 0, config) as running:
            yield AdminClient({"bootstrap.servers": running.bootstrap})


def create(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)


def keep(admin: AdminClient, name: str, retention_ms: int) -> None:
    entry = ConfigEntry("retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_a_client_gets_the_policys_words(admin: AdminClient) -> None:
    create(admin, "team.orders")
    keep(admin, "team.orders", 5000)
    for refused, words in (
        (lambda: create(admin, "orders"), "a topic's name begins with team."),
        (lambda: keep(admin, "team.orders", -1), "for ever is too long"),
    ):
        with pytest.raises(KafkaException) as caught:
            refused()
        assert caught.value.args[0].code() == KafkaError.POLICY_VIOLATION
        assert words in caught.value.args[0].str()
