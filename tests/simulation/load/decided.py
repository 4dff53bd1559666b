"""The part of a load that decides: admins that note what the controllers acknowledged, and what is so in the end.

Each round makes a topic, changes a setting of it, adds an ACL for it, takes a producer id, deletes the topic and the
ACL of an earlier round, and looks at the topics of one broker. tests/stress/checks/decisions.py has the rules. A
request is sent once: one without a clear answer may be carried out later.

Threads: a client has one task; the part is of the driver's task.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.k29_describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.k31_delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulation.load.clients.admin import (
    ALTER_CONFIGS_VERSION,
    CREATE_TOPICS_VERSION,
    DELETE_TOPICS_VERSION,
    SET,
    TIMEOUT_MS,
    TOPIC,
)
from tests.simulation.load.clients.client import METADATA_VERSION, Address, Client
from tests.simulation.load.part import Part, Setting
from tests.stress.checks.decisions import GONE, THERE, Decisions, Seen

#: An authorizer that refuses nobody: without one there are no ACLs.
ACLS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
INIT_PRODUCER_ID_VERSION: Final = 4
DESCRIBE_ACLS_VERSION: Final = 3
CREATE_ACLS_VERSION: Final = 3
DELETE_ACLS_VERSION: Final = 3
DESCRIBE_CONFIGS_VERSION: Final = 4

SETTING: Final = "retention.ms"
DYNAMIC_TOPIC: Final = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG
ACL_TOPIC, LITERAL, ANY, READ, ALLOW = 2, 3, 1, 3, 3
PRINCIPAL: Final = "User:somebody"

KEPT_ROUNDS: Final = 3
PAUSE_S: Final = 1.0  # between two rounds
FINAL_LOOKS: Final = 40
FINAL_PAUSE_S: Final = 0.5

#: The errors that say that the effect is there already. A broker may forward a request twice, but it is done once.
DONE: Final = {ErrorCode.TOPIC_ALREADY_EXISTS: THERE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: GONE}
#: The answers without an answer of the controllers: whether the request was carried out is not clear.
UNCLEAR: Final = (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)


class Decider(Client):
    """See the module."""

    def __init__(self, name: str, bootstrap: list[Address], replicas: int) -> None:
        super().__init__(name, bootstrap)
        self._brokers = bootstrap
        self._replicas = replicas
        self._round = 0
        self.decisions = Decisions()

    def run(self) -> None:
        """Decide until it is asked to stop."""
        while not self.is_stopping:
            self._turn()
            self.wait(PAUSE_S)
        self.close()

    def _turn(self) -> None:
        number, self._round = self._round, self._round + 1
        topic, old = (f"{self.name}-{each}" for each in (number, number - KEPT_ROUNDS))
        self._decide(("topic", topic), THERE, lambda: self._create(topic))
        if self.decisions.is_clear(("topic", topic)):
            value = str(3_600_000 + number)
            self._decide(("setting", topic), value, lambda: self._set(topic, value))
        self._decide(("acl", topic), THERE, lambda: self._create_acl(topic))
        if number >= KEPT_ROUNDS:
            if self.decisions.is_clear(("topic", old)):
                self._delete(old)
            if self.decisions.is_clear(("acl", old)):
                self._decide(("acl", old), GONE, lambda: self._delete_acl(old), THERE)
        self._look()

    def _ask_some(self, message: Any, version: int) -> Any:
        """Send a request once, to the brokers in turn; None without an answer."""
        self._next += 1
        return self.ask(self._brokers[self._next % len(self._brokers)], message, version)

    def _decide(self, name: Hashable, value: object, ask: Callable[[], int | None], before: object = GONE) -> bool:
        """Ask for a value, unless an earlier answer about it was not clear; return whether it was acknowledged."""
        if not self.decisions.is_usable(name):
            return False
        error = ask()
        is_repeated = error is not None and error != 0 and DONE.get(ErrorCode(error)) == value
        if is_repeated:
            self.decisions.repeat(name, ErrorCode(error or 0).name)
        if error == 0 or is_repeated:
            self.decisions.acknowledge(name, value)
            return True
        self.decisions.doubt(name, value, before)
        if error is not None:
            self.may_pass(error, f"{name} = {value}", UNCLEAR)
        return False

    def _create(self, topic: str) -> int | None:
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=self._replicas)
        answer = self._ask_some(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), CREATE_TOPICS_VERSION)
        return None if answer is None else int(answer.topics[0].error_code)

    def _set(self, topic: str, value: str) -> int | None:
        config = AlterableConfig(name=SETTING, config_operation=SET, value=value)
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])
        answer = self._ask_some(IncrementalAlterConfigsRequest(resources=[resource]), ALTER_CONFIGS_VERSION)
        return None if answer is None else int(answer.responses[0].error_code)

    def _delete(self, topic: str) -> None:
        """Delete a topic, and its setting with it."""
        setting = ("setting", topic)
        has_setting = self.decisions.is_clear(setting)
        if self._decide(("topic", topic), GONE, lambda: self._delete_topic(topic), THERE) and has_setting:
            self.decisions.acknowledge(setting, GONE)
        else:
            self.decisions.doubt(setting, GONE)

    def _delete_topic(self, topic: str) -> int | None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic, topic_id=bytes(16))], timeout_ms=TIMEOUT_MS)
        answer = self._ask_some(request, DELETE_TOPICS_VERSION)
        return None if answer is None else int(answer.responses[0].error_code)

    def _create_acl(self, topic: str) -> int | None:
        acl = AclCreation(
            resource_type=ACL_TOPIC, resource_name=topic, resource_pattern_type=LITERAL, principal=PRINCIPAL, host="*",
            operation=READ, permission_type=ALLOW,
        )  # fmt: skip
        answer = self._ask_some(CreateAclsRequest(creations=[acl]), CREATE_ACLS_VERSION)
        return None if answer is None else int(answer.results[0].error_code)

    def _delete_acl(self, topic: str) -> int | None:
        acl = DeleteAclsFilter(
            resource_type_filter=ACL_TOPIC, resource_name_filter=topic, pattern_type_filter=LITERAL,
            principal_filter=PRINCIPAL, host_filter="*", operation=READ, permission_type=ALLOW,
        )  # fmt: skip
        answer = self._ask_some(DeleteAclsRequest(filters=[acl]), DELETE_ACLS_VERSION)
        return None if answer is None else int(answer.filter_results[0].error_code)

    def _look(self) -> None:
        """Look at the topics that a broker knows, and take a producer id."""
        answer = self._ask_some(MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION)
        for name, seen in {} if answer is None else self._topics(answer).items():
            self.decisions.see_topic(name, seen, "a broker")
        answer = self._ask_some(InitProducerIdRequest(transactional_id=None), INIT_PRODUCER_ID_VERSION)
        if answer is not None and not answer.error_code:
            self.producer_ids.add(answer.producer_id)
            self.decisions.give(answer.producer_id, "a broker")

    def _topics(self, answer: Any) -> dict[str, Seen]:
        return {
            topic.name: Seen(
                topic.topic_id,
                tuple(each.leader_epoch for each in sorted(topic.partitions, key=lambda found: found.partition_index)),
            )
            for topic in answer.topics
            if topic.name.startswith(f"{self.name}-") and topic.error_code == 0
        }

    def problems_of(self, client: Client, broker: Address) -> list[str] | None:
        """Compare what was acknowledged with what a broker says; None without an answer."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        metadata = client.ask(broker, request, METADATA_VERSION)
        if metadata is None:
            return None
        topics = self._topics(metadata)
        final: dict[Hashable, object] = {("topic", name): THERE for name in topics}
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[SETTING])
            for name in topics
        ]
        configs = client.ask(broker, DescribeConfigsRequest(resources=resources), DESCRIBE_CONFIGS_VERSION)
        wanted = DescribeAclsRequest(
            resource_type_filter=ACL_TOPIC, resource_name_filter=None, pattern_type_filter=LITERAL,
            principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
        )  # fmt: skip
        acls = client.ask(broker, wanted, DESCRIBE_ACLS_VERSION)
        if configs is None or acls is None:
            return None
        for result in configs.results:
            for config in result.configs:
                if config.name == SETTING and config.config_source == DYNAMIC_TOPIC:
                    final["setting", result.resource_name] = config.value
        for resource in acls.resources:
            final["acl", resource.resource_name] = THERE
        return self.decisions.check(final, topics)


class Decided(Part):
    """See the module."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._setting = setting
        replicas = min(2, setting.story.brokers)
        self._deciders = [
            Decider(f"decider-{number}", setting.bootstrap, replicas) for number in range(setting.story.deciders)
        ]
        self.clients = [*self._deciders]
        self._problems: list[str] = []

    def last(self) -> Iterable[tuple[Client, Callable[[], None]]]:
        """See Part."""
        for decider in self._deciders:
            reader = Client(f"reader of {decider.name}", self._setting.bootstrap)
            yield reader, partial(self._compare, reader, decider)

    def _compare(self, reader: Client, decider: Decider) -> None:
        """Compare with each broker, again and again, since it may lag."""
        for broker in self._setting.bootstrap:
            found: list[str] | None = None
            for _ in range(FINAL_LOOKS):
                found = decider.problems_of(reader, broker)
                if found == []:
                    break
                reader.wait(FINAL_PAUSE_S)
            self._problems += [f"{each}, says {broker[0]}" for each in found or ()]
            if found is None:
                self._problems.append(f"{broker[0]} says nothing about what was decided")
        reader.close()

    def check(self) -> Iterable[str]:
        """See Part."""
        return self._problems

    def summary(self) -> str:
        """See Part."""
        acknowledged = sum(each.decisions.acknowledged for each in self._deciders)
        given = sum(each.decisions.producer_ids for each in self._deciders)
        return f"decided: {acknowledged} decisions acknowledged, {given} producer ids"
