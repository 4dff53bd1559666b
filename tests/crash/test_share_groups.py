"""Share consumers of the Java client, or of three clients in one group, while every broker is killed once: kill -9.

Each broker leads partitions of the topic, and coordinates share state or the group. What must hold afterwards: every
record was delivered; a record that one member settled (accepted or rejected, as the broker confirmed) was not settled
or released again, by a member of whichever client; and nothing is left to be delivered. A record is delivered again
only if it was released, or if its acknowledgement was not confirmed. Before the first kill, every acknowledgement is
confirmed, and no record is delivered after it was settled.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster import BarnabasCluster
from tests.support.history import RECONNECT
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.share_members import (
    ACCEPT,
    REJECT,
    Deliveries,
    Position,
    Program,
    ShareMembers,
    go_members,
    java_members,
    librdkafka_members,
)
from tests.support.waiting import START_TIMEOUT_MS, eventually

TOPIC, GROUP, PARTITIONS = "shared", "workers", 4
RECORDS = 50  # of each partition, before each kill or whenever few are left
BROKERS = 3
LIMIT = 10  # deliveries
RELEASES, REJECTS = 7, 11  # of so many offsets one
PRODUCE_TIMEOUT_S = 30
WORK_TIMEOUT_MS = SETTLED_TIMEOUT_MS = 60_000
CONFIG = {
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    # Longer than a member may hold records that it has not reported yet, also on a busy machine: else a record may be
    # reported that another member has got and settled meanwhile.
    "group.share.record.lock.duration.ms": "10000",
    "group.share.delivery.count.limit": str(LIMIT),
    "share.coordinator.state.topic.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Three brokers, with a topic that all of them have."""
    with BarnabasCluster(tmp_path, broker_count=BROKERS, first_port=0, config=CONFIG) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, BROKERS, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(20)
        yield cluster


@pytest.fixture(
    params=[
        pytest.param(("java",), id="java"),
        pytest.param(("java", "librdkafka", "franz-go"), id="three clients", marks=pytest.mark.needs("go")),
    ]
)
def programs(request: pytest.FixtureRequest) -> list[Program]:
    """The members of the group: four of one client, or two of each."""
    clients = {
        "java": lambda count: Program(java_members(kafka_runtime()), count),
        "librdkafka": lambda count: Program(librdkafka_members(), count, {k: str(v) for k, v in RECONNECT.items()}),
        "franz-go": lambda count: Program(go_members(), count),
    }
    return [clients[name](4 if len(request.param) == 1 else 2) for name in request.param]


class Work:
    """The records of the topic, and how far the members are."""

    def __init__(self, bootstrap: str, programs: list[Program], deliveries: Deliveries) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._deliveries = deliveries
        self._clients: list[range] = []  # the numbers of each client's members
        for program in programs:
            first = self._clients[-1].stop if self._clients else 0
            self._clients.append(range(first, first + program.members))
        self.records: set[Position] = set()

    def add(self) -> None:
        """Produce RECORDS to each partition."""
        first = len(self.records) // PARTITIONS
        for offset in range(first, first + RECORDS):
            for partition in range(PARTITIONS):
                self._producer.produce(TOPIC, str(offset), partition=partition)
                self.records.add((partition, offset))
        assert self._producer.flush(PRODUCE_TIMEOUT_S) == 0

    def by_client(self) -> list[int]:
        """Return how many records the members of each client have settled for certain."""
        return [sum(self._deliveries.settled_by[member] for member in client) for client in self._clients]

    def open(self) -> set[Position]:
        """Return the records of which no member's acknowledgement has been answered, one way or the other."""
        return self.records - self._deliveries.settled.keys() - self._deliveries.unknown.keys()

    def go_on(self, members: ShareMembers) -> None:
        """Return when members of every client have settled records, and more than RECORDS in all, since the call."""
        before = self.by_client()

        def are_at_work() -> bool:
            now = self.by_client()
            if len(self.open()) < RECORDS:
                self.add()  # other members may have taken all that there was
            return sum(now) > sum(before) + RECORDS and all(new > old for new, old in zip(now, before, strict=True))

        eventually("members of every client work", lambda: members.has_failed or are_at_work(), WORK_TIMEOUT_MS)


def test_every_record_is_settled_once_whichever_broker_is_killed(
    cluster: BarnabasCluster, tools: KafkaTools, programs: list[Program]
) -> None:
    where = ("--bootstrap-server", cluster.bootstrap)
    of_group = ("--entity-type", "groups", "--entity-name", GROUP)
    tools.run(
        "kafka-configs", *where, "--alter", *of_group, "--add-config", "share.auto.offset.reset=earliest"
    ).check()  # fmt: skip
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "max.poll.records": "10"}
    deliveries = Deliveries()
    work = Work(cluster.bootstrap, programs, deliveries)
    with ShareMembers(programs, settings, TOPIC, deliveries, releases=RELEASES, rejects=REJECTS) as members:
        count = sum(program.members for program in programs)
        eventually(
            "all members have joined",
            lambda: members.has_failed or len(described(tools, cluster, "--members")) == count,
            START_TIMEOUT_MS,
        )
        for node in cluster.brokers:
            work.add()
            work.go_on(members)
            if node is cluster.brokers[0]:
                assert not deliveries.unknown, deliveries.refusals
            cluster.stop_node(node, signal.SIGKILL)
            cluster.start_node(node)
        work.add()
        work.go_on(members)
        eventually(
            "every record is settled, or may be", lambda: members.has_failed or not work.open(), SETTLED_TIMEOUT_MS
        )
        eventually("nothing is left", lambda: members.has_failed or lag(tools, cluster) == 0, SETTLED_TIMEOUT_MS)
    members.stop()
    print(f"{work.by_client()} of {len(work.records)} settled, {sum(deliveries.got.values())} deliveries")
    print(f"perhaps: {dict(deliveries.refusals)}, late: {len(deliveries.late)}")
    assert deliveries.mistakes == []
    assert deliveries.got.keys() == work.records
    assert deliveries.unexplained() == []
    for (_, offset), how in deliveries.settled.items():
        assert how == (REJECT if offset % REJECTS == REJECTS - 1 else ACCEPT)
    assert max(deliveries.counts.values()) <= LIMIT


@pytest.mark.parametrize(
    ("reports", "mistakes"),
    [
        (["G 0 0 5 1 A", "D 0 0 5"], 0),
        (["G 0 0 5 1 L", "D 0 0 5", "G 1 0 5 2 A", "D 1 0 5"], 0),
        (["G 0 0 5 1 A", "E 0 0 5 error", "G 1 0 5 1 A", "D 1 0 5"], 0),
        (["G 0 0 5 1 L", "G 1 0 5 2 A", "D 1 0 5", "D 0 0 5"], 0),  # the answer to the release is reported late
        (["G 1 0 5 1 A", "G 0 0 5 1 A", "D 1 0 5", "E 0 0 5 error"], 0),
        (["G 1 0 5 1 A", "D 1 0 5", "G 0 0 5 1 A", "E 0 0 5 error"], 0),  # fetched before, delivered late, and refused
        (["G 1 0 5 1 A", "D 1 0 5", "G 0 0 5 1 L", "D 0 0 5"], 2),  # released after it was settled
        (["G 0 0 5 1 A", "D 0 0 5", "G 1 0 5 1 A"], 1),  # delivered after it was settled, and not answered
        (["G 0 0 5 1 R", "G 1 0 5 1 A", "D 0 0 5", "D 1 0 5"], 2),  # settled twice
        (["G 0 0 5 1 L", "D 0 0 5", "G 1 0 5 1 A"], 1),  # not answered
    ],
)  # fmt: skip
def test_the_checker_can_fail(reports: list[str], mistakes: int) -> None:
    deliveries = Deliveries()
    for report in reports:
        deliveries.add(report)
    assert len(deliveries.mistakes) + len(deliveries.unexplained()) == mistakes


def lag(tools: KafkaTools, cluster: BarnabasCluster) -> int:
    """Return the records that the group has not settled, by kafka-share-groups; -1: not known of some partition."""
    lags = [line.split()[4] for line in described(tools, cluster)]
    return sum(map(int, lags)) if len(lags) == PARTITIONS and "-" not in lags else -1


def described(tools: KafkaTools, cluster: BarnabasCluster, *what: str) -> list[str]:
    """Return the lines of kafka-share-groups about the group."""
    where = ("--bootstrap-server", cluster.bootstrap)
    result = tools.run("kafka-share-groups", *where, "--describe", "--group", GROUP, *what)
    return [line for line in result.stdout.splitlines() if line.startswith(f"{GROUP} ")]
