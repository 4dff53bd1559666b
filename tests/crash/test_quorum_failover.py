"""Three controllers: the active one is killed or stands still, and nothing that was acknowledged is lost.

With users, the same for what the metadata has of security.

Covers `controller/metadata/opened_log.py` too.
"""

from __future__ import annotations

import base64
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from barnabas.cluster import Node
from barnabas.cluster.security.cluster_security import SASL_PLAINTEXT, ClusterSecurity
from barnabas.common.clock import SystemClock
from barnabas.protocol.messages import k48_describe_client_quotas as k48
from barnabas.protocol.messages import k49_alter_client_quotas as k49
from barnabas.protocol.messages import k55_describe_quorum as k55
from barnabas.protocol.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.support.access import Access, rules, secured
from tests.support.cluster import BarnabasCluster
from tests.support.history import RECONNECT
from tests.support.security_faults import with_token
from tests.support.waiting import eventually

CONFIG = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}
CONTROLLERS = 2  # the endpoint type of DescribeCluster


def described(node: Node) -> DescribeClusterResponse | None:
    """What a controller says of the controllers; None if it does not answer."""
    if not node.is_running or node.paused:
        return None
    try:
        with NodeConnection(node.host, node.port, timeout_ms=5_000) as connection:
            response = connection.send(DescribeClusterRequest(endpoint_type=CONTROLLERS), 2)
            assert isinstance(response, DescribeClusterResponse)
            return response
    except OSError:
        return None


def registered(node: Node) -> set[int]:
    """The controllers that a controller knows; nothing if it does not answer."""
    answer = described(node)
    return set() if answer is None else {broker.broker_id for broker in answer.brokers}


def active(cluster: BarnabasCluster) -> Node:
    """Wait until all controllers that run agree on one of them; return it."""
    found: set[int] = set()

    def is_known() -> bool:
        running = [node for node in cluster.controllers if node.is_running and not node.paused]
        answers = [described(node) for node in running]
        found.clear()
        found.update(-1 if answer is None else answer.controller_id for answer in answers)
        return len(found) == 1 and found <= {node.node_id for node in running}

    eventually("one active controller", is_known, 60_000)
    return cluster.nodes[found.pop()]


class Admin:
    """Creates topics one after the other, and remembers those that were acknowledged."""

    def __init__(self, cluster: BarnabasCluster) -> None:
        self._client = AdminClient({"bootstrap.servers": cluster.bootstrap, **RECONNECT})
        self.created: list[str] = []

    def create(self, count: int = 3) -> None:
        """Create topics with one replica on each of two brokers."""
        for _ in range(count):
            name = f"t{len(self.created)}"
            self._client.create_topics([NewTopic(name, 2, 2)])[name].result(60)
            self.created.append(name)

    def has_all(self) -> bool:
        """Whether every topic is there, with leaders."""
        topics = self._client.list_topics(timeout=20).topics
        return all(
            name in topics and all(partition.leader >= 0 for partition in topics[name].partitions.values())
            for name in self.created
        )


@contextmanager
def producing(cluster: BarnabasCluster, topic: str) -> Iterator[list[object]]:
    """Produce with acks=all all the while; yields the errors of deliveries."""
    errors: list[object] = []
    over = threading.Event()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 30_000})

    def note(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    def run() -> None:
        while not over.wait(0.01):
            producer.produce(topic, b"x", on_delivery=note)
            producer.poll(0)

    worker = threading.Thread(target=run)
    worker.start()
    try:
        yield errors
    finally:
        over.set()
        worker.join()
        assert producer.flush(60) == 0


def test_the_active_controller_is_killed_or_stands_still(tmp_path: Path) -> None:
    with BarnabasCluster(tmp_path, broker_count=2, first_port=0, config=CONFIG, controller_count=3) as cluster:
        admin = Admin(cluster)
        admin.create()
        first = active(cluster)
        with producing(cluster, "t0") as errors:
            cluster.stop_node(first, signal.SIGKILL)
            admin.create()
            second = active(cluster)
            assert second is not first
            cluster.start_node(first)
            eventually("three controllers", lambda: described(first) is not None)
            cluster.signal_node(second, signal.SIGSTOP)
            admin.create()
            third = active(cluster)
            assert third is not second
            cluster.signal_node(second, signal.SIGCONT)
            eventually("the old one follows", lambda: active(cluster) is not second)
            admin.create()
            cluster.stop_node(active(cluster))  # an orderly end
            admin.create()
        assert errors == []
        eventually("all topics", admin.has_all)
    with BarnabasCluster(tmp_path, broker_count=2, first_port=0, config=CONFIG, controller_count=3) as again:
        after = Admin(again)
        after.created += admin.created
        eventually("all topics", after.has_all)
        after.create()


def test_a_cluster_with_one_controller_goes_on_with_three(tmp_path: Path) -> None:
    with BarnabasCluster(tmp_path, broker_count=2, first_port=0, config=CONFIG) as cluster:
        admin = Admin(cluster)
        admin.create()
    with BarnabasCluster(tmp_path, broker_count=2, first_port=0, config=CONFIG, controller_count=3) as grown:
        after = Admin(grown)
        after.created += admin.created
        eventually("all topics", after.has_all)
        eventually("all controllers are registered", lambda: registered(active(grown)) == {100, 101, 102})
        grown.stop_node(grown.controller, signal.SIGKILL)
        after.create()
        eventually("all topics", after.has_all)
        assert registered(active(grown)) == {100, 101, 102}


class Secrets:
    """A user with SCRAM, its token, a right and a quota: made before a failure, and asked of a broker after it."""

    USER, RIGHT, QUOTA = "alice", "alice write topic:orders", ("producer_byte_rate", 12_345.0)

    def __init__(self, cluster: BarnabasCluster, security: ClusterSecurity) -> None:
        self._access = Access(cluster.directory, cluster.bootstrap, security)
        self._access.allow(cluster.brokers, self.RIGHT)
        broker = cluster.brokers[0]
        with self._connection(broker, self.USER) as own:
            token = own.send(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert token.error_code == 0
        hmac = base64.b64encode(token.hmac).decode()
        login = security.login(self.USER)._replace(user=token.token_id, password=hmac)
        self._by_token = secured(with_token(login))
        entity, (key, value) = k49.EntityData(entity_type="user", entity_name=self.USER), self.QUOTA
        change = k49.RequestEntryData(entity=[entity], ops=[k49.OpData(key=key, value=value)])
        with self._connection(broker) as admin:
            assert admin.send(k49.AlterClientQuotasRequest(entries=[change]), 1).entries[0].error_code == 0

    def are_known_to(self, broker: Node) -> bool:
        """Whether the user and the token log in at a broker, which has the right and the quota."""
        try:
            with self._connection(broker, self.USER) as own:
                own.connect()
            with NodeConnection(broker.host, broker.port, timeout_ms=5_000, security=self._by_token) as own:
                own.connect()
            with self._connection(broker) as admin:
                found = admin.send(k48.DescribeClientQuotasRequest(components=[]), 1).entries
            return self._access.acls(broker) >= set(rules(self.RIGHT)) and [
                (value.key, value.value) for entry in found for value in entry.values
            ] == [self.QUOTA]
        except OSError:
            return False

    def active(self, broker: Node) -> int:
        """The id of the active controller, according to a broker."""
        partition = k55.RequestPartitionData(partition_index=0)
        request = k55.DescribeQuorumRequest(
            topics=[k55.RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])]
        )
        try:
            with self._connection(broker) as admin:
                topics = admin.send(request, 2).topics
            return topics[0].partitions[0].leader_id if topics else -1
        except OSError:
            return -1

    def _connection(self, broker: Node, *user: str) -> NodeConnection:
        return self._access.connect(*user)(broker.host, broker.port, timeout_ms=5_000)


def test_users_tokens_rights_and_quotas_survive_the_active_controller(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path, SASL_PLAINTEXT, {"alice": "a-secret"}, SystemClock().wall_ms())
    with BarnabasCluster(
        tmp_path, broker_count=2, first_port=0, config=CONFIG, controller_count=3, security=security
    ) as cluster:
        first, second = cluster.brokers
        secrets = Secrets(cluster, security)
        killed = secrets.active(first)
        cluster.stop_node(cluster.nodes[killed], signal.SIGKILL)
        eventually("another one", lambda: secrets.active(first) not in (-1, killed), 60_000)
        cluster.stop_node(second, signal.SIGKILL)
        cluster.start_node(second)  # it learns everything from the new one
        for broker in (second, first):
            eventually(f"{broker.name} knows all", lambda broker=broker: secrets.are_known_to(broker), 60_000)  # type: ignore[misc]
