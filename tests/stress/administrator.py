"""An administrator under stress: topics, settings, ACLs and producer ids, all through brokers, as fast as they answer.

Each round makes a topic, changes a setting of it twice, and adds an ACL for it; it deletes the topic and the ACL of an
earlier round. It also takes producer ids, and looks at the topics of each broker in turn. `decisions.py` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.cluster import Node
from barnabas.protocol.messages import k32_describe_configs as configs_wire
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
from tests.stress.checks.decisions import GONE, THERE, Decisions, Seen
from tests.support.access import Access
from tests.support.history import RECONNECT, Worker

PREFIX = "decided-"
SETTING = "retention.ms"
KEPT_ROUNDS = 8
ANSWER_TIMEOUT_S = 15
FINAL_TIMEOUT_S = 60
LOOK_TIMEOUT_MS = 1_000
PAUSE_S = 0.05
METADATA_VERSION, INIT_VERSION, ACLS_VERSION, CONFIGS_VERSION = 12, 4, 3, 4
TOPIC_RESOURCE = 2  # ConfigResource.Type.TOPIC
DYNAMIC_TOPIC = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
PRODUCER_IDS = 5  # of each broker in a round

A = TypeVar("A", bound=AclBinding)

#: Errors that say that the effect is there already: a request that was sent twice.
DONE = {
    KafkaError.TOPIC_ALREADY_EXISTS: THERE,
    KafkaError.UNKNOWN_TOPIC_OR_PART: GONE,
}


class Administrator(Worker):
    """See the module."""

    def __init__(self, access: Access, brokers: list[Node]) -> None:
        super().__init__("administrator")
        self._access = access
        self._brokers = brokers
        self._client = AdminClient({**access.librdkafka(), "socket.timeout.ms": 5_000, "log_level": 0, **RECONNECT})
        self._round = 0  # owner: its thread
        self.decisions = Decisions()  # owner: its thread; read after it has ended

    def _turn(self) -> None:
        number, self._round = self._round, self._round + 1
        topic = f"{PREFIX}{number}"
        self._ask(("topic", topic), THERE, lambda: self._create(topic))
        if self.decisions.is_clear(("topic", topic)):
            for value in (3_600_000 + number, 7_200_000 + number):
                self._ask(("setting", topic), str(value), lambda value=value: self._set(topic, value))  # type: ignore[misc]
        self._ask(("acl", topic), THERE, lambda: self._client.create_acls([_acl(topic, AclBinding)]))
        old = f"{PREFIX}{number - KEPT_ROUNDS}"
        if number >= KEPT_ROUNDS:
            if self.decisions.is_clear(("topic", old)):
                self._delete(old)
            if self.decisions.is_clear(("acl", old)):
                self._ask(("acl", old), GONE, lambda: self._client.delete_acls([_acl(old, AclBindingFilter)]), THERE)
        self._look(self._brokers[number % len(self._brokers)])
        self._stopping.wait(PAUSE_S)

    def _close(self) -> None:
        """Nothing: the client closes itself."""

    # Requests

    def _ask(
        self, name: Hashable, value: object, ask: Callable[[], dict[Any, Future[Any]]], before: object = GONE
    ) -> bool:
        """Ask for a value, unless an earlier answer about it was not clear; return whether it was acknowledged."""
        if self._stopping.is_set() or not self.decisions.is_usable(name):
            return False
        try:
            for future in ask().values():
                future.result(ANSWER_TIMEOUT_S)
        except TimeoutError:
            self.decisions.doubt(name, value, before)
            return False
        except KafkaException as failure:
            if DONE.get(failure.args[0].code()) != value:
                self.decisions.doubt(name, value, before)
                return False
        self.decisions.acknowledge(name, value)
        return True

    def _create(self, topic: str) -> Any:
        return self._client.create_topics([NewTopic(topic, 2, 2)], operation_timeout=1.0)

    def _set(self, topic: str, value: int) -> Any:
        entry = ConfigEntry(SETTING, str(value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        return self._client.incremental_alter_configs([resource])

    def _delete(self, topic: str) -> None:
        """Delete a topic, and its setting with it."""
        has_setting = self.decisions.is_clear(("setting", topic))
        if self._ask(("topic", topic), GONE, lambda: self._client.delete_topics([topic], operation_timeout=1.0), THERE):
            if has_setting:
                self.decisions.acknowledge(("setting", topic), GONE)
            else:
                self.decisions.doubt(("setting", topic), GONE)
        else:
            self.decisions.doubt(("setting", topic), GONE)

    # What brokers say

    def _look(self, node: Node) -> None:
        try:
            with self._access.connect()(node.host, node.port, timeout_ms=LOOK_TIMEOUT_MS) as connection:
                for name, seen in _topics(connection).items():
                    self.decisions.see_topic(name, seen, node.name)
                for _ in range(PRODUCER_IDS):
                    answer = connection.send(InitProducerIdRequest(transactional_id=None), INIT_VERSION)
                    if answer.error_code == 0:
                        self.decisions.give(answer.producer_id, node.name)
        except NodeConnectionError:
            return  # it is down, paused or cut off

    def problems(self) -> list[str]:
        """Compare with each broker of a healed cluster, after the worker has ended; wait for those that lag."""
        found = [problem for node in self._brokers for problem in self._problems_of(node)]
        return list(dict.fromkeys(found))

    def _problems_of(self, node: Node) -> list[str]:
        with self._access.connect()(node.host, node.port, timeout_ms=FINAL_TIMEOUT_S * 1000) as connection:
            topics = _topics(connection)
            settings, acls = _settings(connection, topics), _acls(connection)
        final: dict[Hashable, object] = {("topic", name): THERE for name in topics}
        final |= {("setting", name): value for name, value in settings.items()}
        final |= {("acl", name): THERE for name in acls}
        return self.decisions.check(final, topics)


def _topics(connection: NodeConnection) -> dict[str, Seen]:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response = connection.send(request, METADATA_VERSION)
    return {
        topic.name: Seen(
            topic.topic_id,
            tuple(each.leader_epoch for each in sorted(topic.partitions, key=lambda found: found.partition_index)),
        )
        for topic in response.topics
        if topic.name.startswith(PREFIX) and topic.error_code == 0
    }


def _settings(connection: NodeConnection, topics: Iterable[str]) -> dict[str, str | None]:
    """The setting of each topic that has one, according to this broker."""
    resources = [
        configs_wire.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[SETTING]
        )
        for topic in topics
    ]
    response = connection.send(configs_wire.DescribeConfigsRequest(resources=resources), CONFIGS_VERSION)
    return {
        result.resource_name: config.value
        for result in response.results
        for config in result.configs
        if config.config_source == DYNAMIC_TOPIC
    }


def _acls(connection: NodeConnection) -> set[str]:
    """The topics that have an ACL, according to this broker."""
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC.value,
        resource_name_filter=None,
        pattern_type_filter=ResourcePatternType.ANY.value,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY.value,
        permission_type=AclPermissionType.ANY.value,
    )
    response = connection.send(request, ACLS_VERSION)
    assert response.error_code == 0, response.error_message
    return {resource.resource_name for resource in response.resources}


def _acl(topic: str, kind: type[A]) -> A:
    """The ACL of a topic: to make it, or to delete it."""
    return kind(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:somebody",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
