"""Each right of THE table, present and taken away, on Apache Kafka and on Barnabas: the same error codes.

Clients are anonymous on a plaintext listener. The nodes know each other by SASL (Apache Kafka) and by certificates
(Barnabas), so that only they are super users.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from barnabas.broker.authorization.row import Row
from barnabas.broker.requests.error_codes import error_codes_of
from barnabas.cluster import HOST, free_ports
from barnabas.common.processes.interpreter import command
from barnabas.config.checks import STANDARD_AUTHORIZER
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader, decode_response_header, encode_request
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k22_init_producer_id import InitProducerIdRequest
from barnabas.security.values import ANY_NAME, CLUSTER_NAME
from barnabas.security.values import ResourceType as Kind
from tests.broker.authorization import scenarios
from tests.broker.authorization.scenarios import ALTERNATIVES, SCENARIOS, SECOND
from tests.broker.authorization.test_broker_rows import STANDS_FOR, WHOLE, row_id, whole_request
from tests.support.certificates import Authority
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import START_TIMEOUT_MS, eventually
from tests.support.wire import RawConnection, is_serving

pytestmark = pytest.mark.needs("java", "javac", "mvn")

TIMEOUT_S = 30
SIZE_BYTES = 4
ANONYMOUS = "User:ANONYMOUS"
TOPICS = ("t", "u", "a")
KINDS = {
    Kind.TOPIC: ResourceType.TOPIC,
    Kind.GROUP: ResourceType.GROUP,
    Kind.CLUSTER: ResourceType.BROKER,
    Kind.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
#: A coordinator that has yet to load, or a transaction that has yet to end: ask again.
SOON = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
#: Rows on which we differ, or whose requests Apache Kafka 4.3 does not answer at all (it closes the connection).
NOT_COMPARED = {
    scenarios.rights.FETCH_AS_REPLICA: "a replica that does not exist gets another error when it has the right",
    scenarios.rights.LIST_OFFSETS_AS_REPLICA: "we demand CLUSTER_ACTION",
    scenarios.rights.INIT_TRANSACTION: "v6 is unstable in Apache Kafka",
    scenarios.rights.INIT_TWO_PHASE: "v6 is unstable in Apache Kafka",
    scenarios.rights.DESCRIBE_ACLS: "the default message has an unknown element",
    scenarios.rights.ADD_PARTITIONS_OF_CLIENTS: "a default message has a transaction more here",
}
PUSHES = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.FETCH_SNAPSHOT}
COMMON = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Members are prepared once and send no heartbeats: they outlive all tests of the module.
    "group.consumer.session.timeout.ms": "1800000",
    "group.consumer.max.session.timeout.ms": "1800000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


class Live:
    """A running broker that scenarios ask, as an anonymous client, and its administrator."""

    def __init__(self, port: int, admin: Mapping[str, str]) -> None:
        self.port = port
        self.admin = AdminClient(dict(admin))
        self.codes: list[list[int]] = []  # of each answer since the last question
        self.producers: dict[str, tuple[int, int]] = {}
        self.ids: dict[str, bytes] = {}

    def prepare(self) -> None:
        """Create the topics, and let coordinators and producers begin."""
        self.give()
        for future in self.admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
            future.result(TIMEOUT_S)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("t", "u")])
        eventually("the topics are known", lambda: not any(error_codes_of(self._answer(wanted, 12))))
        self.ids = {topic.name: topic.topic_id for topic in self._answer(wanted, 12).topics}
        for key_type in (0, 1):
            self.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)
        for name in ("x", "y"):
            answer = self.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
            self.producers[name] = (answer.producer_id, answer.producer_epoch)
        scenarios.list_groups(self)

    @property
    def group_ids(self) -> dict[str, bytes]:
        return self.ids

    def ask(self, message: Any, version: int) -> Any:
        def answer() -> Any:
            given = self._answer(message, version)
            return None if SOON & set(error_codes_of(given)) else given

        given = eventually(f"{type(message).__name__} is answered", answer)
        self.codes.append(sorted(error_codes_of(given)))
        return given

    ask_groups = ask_coordinators = ask_configs = ask

    def unchecked(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()  # `prepare` has done with every right what scenarios do with it

    def before(self, preparation: Callable[[], object]) -> None:
        """Nothing: what `prepare` has not done is missing on both sides, as are share groups (g and h are others)."""

    def settle(self) -> None:
        """Nothing: the next question finds it."""

    def _answer(self, message: Any, version: int) -> Any:
        frame = bytes(encode_request(RequestHeader(message.API_KEY, version, 7, "c"), message)[SIZE_BYTES:])
        with RawConnection(self.port) as connection:
            response = connection.request(frame)
        assert response is not None, f"{type(message).__name__} closes the connection"
        _, offset = decode_response_header(memoryview(response), message.API_KEY, version)
        return response_class(message.API_KEY).decode(memoryview(response), version, offset)

    def give(self, *missing: Row, name: str = ANY_NAME) -> None:
        """Give every right but these."""
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for future in self.admin.delete_acls([everything]).values():
            future.result(TIMEOUT_S)
        acls = [_acl(kind, ANY_NAME, AclOperation.ALL, AclPermissionType.ALLOW) for kind in KINDS.values()]
        acls += [
            _acl(KINDS[row.resource], name, AclOperation[row.operation.name], AclPermissionType.DENY) for row in missing
        ]
        for future in self.admin.create_acls(acls).values():
            future.result(TIMEOUT_S)
        wanted = len(acls)
        eventually("the ACLs are there", lambda: len(self.admin.describe_acls(everything).result(TIMEOUT_S)) == wanted)

    def codes_of(self, question: Callable[[Live], object], *missing: Row, name: str = ANY_NAME) -> list[list[int]]:
        """Return the error codes of every answer to a question, while these rights are missing."""
        self.give(*missing, name=name)
        self.codes = []
        with contextlib.suppress(KeyError):  # a scenario that names items may not find one that is refused
            question(self)
        return self.codes


def _acl(kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    resource = CLUSTER_NAME if kind == ResourceType.BROKER else name
    return AclBinding(kind, resource, ResourcePatternType.LITERAL, ANONYMOUS, "*", operation, permission)


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[Live]:
    """Apache Kafka, whose nodes log in by SASL."""
    client, internal, controller = free_ports(3)
    login = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="p" user_admin="p";'
    )
    config = {
        **COMMON,
        "super.users": "User:admin",
        "controller.quorum.voters": f"0@{HOST}:{controller}",
        "listeners": f"CLIENT://{HOST}:{client},INTERNAL://{HOST}:{internal},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"CLIENT://{HOST}:{client},INTERNAL://{HOST}:{internal}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.internal.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
    }
    broker = ApacheKafka(kafka_runtime(), directory / "kafka", config)
    broker.format()
    broker.launch()
    try:
        eventually("Apache Kafka is ready", lambda: is_serving(client), START_TIMEOUT_MS)
        yield Live(
            client,
            {
                "bootstrap.servers": f"{HOST}:{internal}",
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "p",
            },
        )
    finally:
        broker.stop()


@contextlib.contextmanager
def barnabas(directory: Path) -> Iterator[Live]:
    """A controller and a broker that know each other by certificates."""
    client, internal, controller = free_ports(3)
    authority = Authority()
    authority.write_pem(directory / "ca.pem")
    listeners = {
        "controller": f"CONTROLLER://localhost:{controller}",
        "broker": f"SSL://localhost:{internal},CLIENT://{HOST}:{client}",
    }
    processes = []
    try:
        for number, (role, text) in enumerate(listeners.items()):
            settings = {
                **COMMON,
                "super.users": ";".join(f"User:O=Barnabas,CN={name}" for name in (*listeners, "admin")),
                "node.id": 100 - number,
                "process.roles": role,
                "listeners": text,
                "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL,CLIENT:PLAINTEXT",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": f"localhost:{controller}",
                "inter.broker.listener.name": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": authority.issue(role).write_pem(directory / f"{role}.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": directory / "ca.pem",
                "ssl.client.auth": "required",
                "log.dirs": directory / role,
            }
            file = directory / f"{role}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            with (directory / f"{role}.log").open("wb") as log:
                arguments = tied_to_parent([*command(f"barnabas.{role}.main"), str(file)])
                processes.append(subprocess.Popen(arguments, stdout=log, stderr=log))
        eventually(
            "the broker is ready", lambda: "is ready" in (directory / "broker.log").read_text(), START_TIMEOUT_MS
        )
        admin = authority.issue("admin", names=()).write_pem(directory / "admin.pem")
        yield Live(
            client,
            {
                "bootstrap.servers": f"localhost:{internal}",
                "security.protocol": "ssl",
                "ssl.ca.location": str(directory / "ca.pem"),
                "ssl.certificate.location": str(admin),
                "ssl.key.location": str(admin),
            },
        )
    finally:
        for process in reversed(processes):
            end_process(process)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, Live]]:
    """Apache Kafka, then Barnabas."""
    with ExitStack() as stack:
        theirs = stack.enter_context(kafka(tmp_path_factory.mktemp("kafka")))
        ours = stack.enter_context(barnabas(tmp_path_factory.mktemp("barnabas")))
        for side in (theirs, ours):
            side.prepare()
        yield theirs, ours


def questions() -> dict[Row, Callable[[Live], object]]:
    """What to ask for each row that is compared."""
    own = {row: question for row, question in SCENARIOS.items() if row.resource in KINDS}
    own |= {row: question for row, (_, question) in ALTERNATIVES.items()}
    whole = {row: _whole(row) for row in WHOLE if row.key not in PUSHES}
    return {row: question for row, question in {**own, **whole}.items() if row not in NOT_COMPARED}


def _whole(row: Row) -> Callable[[Live], object]:
    request = whole_request(row)
    return lambda side: side.ask(request.message, request.version)


@pytest.mark.parametrize("row", questions(), ids=row_id)
def test_the_errors_are_kafkas(row: Row, both: tuple[Live, Live]) -> None:
    question = questions()[row]
    other = ALTERNATIVES[row][0] if row in ALTERNATIVES else STANDS_FOR.get(row)
    cases = [(), (row,)] if other is None else [(), (row,), (other,), (row, other)]
    name = SECOND[row.resource] if row in SCENARIOS or row in ALTERNATIVES else ANY_NAME
    for missing in cases:
        theirs, ours = (side.codes_of(question, *missing, name=name) for side in both)
        assert ours == theirs, [row_id(each) for each in missing]
