"""Faults in a cluster of real processes, with a real client (librdkafka)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.clock import SystemClock
from barnabas.faults import Fault, Faults, Scenario
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually
from tests.support.wire import listed_brokers

TIMEOUT_S = 60
HOUR_MS = 3_600_000
CONFIG = {
    "barnabas.faults.enable": "true",
    "replica.lag.time.max.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "1",
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with BarnabasCluster(tmp_path_factory.mktemp("faults"), 3, 0, CONFIG) as running:
        yield running


@pytest.fixture
def faults(cluster: BarnabasCluster) -> Iterator[Faults]:
    with Faults(cluster) as made:
        yield made
    assert made.list() == []


@pytest.fixture
def admin(cluster: BarnabasCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


class Topic:
    """A topic for one test; broker n leads partition n."""

    def __init__(self, cluster: BarnabasCluster, admin: AdminClient, **config: str) -> None:
        self.name = f"t-{next(_numbers)}"
        self._cluster = cluster
        self._admin = admin
        placed = [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
        entries = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(self.name, len(placed), replica_assignment=placed, config=entries)
        admin.create_topics([new])[self.name].result(TIMEOUT_S)
        eventually("the topic is there", lambda: all(len(self.isr(index)) == 3 for index in range(3)))

    def isr(self, partition: int) -> list[int]:
        found = self._admin.list_topics(self.name, timeout=TIMEOUT_S).topics[self.name].partitions
        return sorted(found[partition].isrs) if partition in found else []

    def produce(self, partition: int, **config: Any) -> Message | str:
        """Return the delivered message, or the name of its error."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "linger.ms": 0, **config})
        done: list[tuple[KafkaError | None, Message]] = []
        producer.produce(self.name, b"v", partition=partition, on_delivery=lambda *both: done.append(both))
        assert producer.flush(TIMEOUT_S) == 0
        ((error, message),) = done
        return message if error is None else str(error.name())

    def consumer(self, partition: int, **config: Any) -> Consumer:
        from confluent_kafka import TopicPartition

        about = {"bootstrap.servers": self._cluster.bootstrap, "group.id": self.name, **config}
        made = Consumer(about)
        made.assign([TopicPartition(self.name, partition, 0)])
        return made


@pytest.fixture
def topic(cluster: BarnabasCluster, admin: AdminClient) -> Topic:
    return Topic(cluster, admin)


def delivered(outcome: Message | str) -> int:
    """Return the offset of a delivered message."""
    assert isinstance(outcome, Message), outcome
    return int(outcome.offset() or 0)


# Wire faults


def test_a_producer_sees_an_error_of_one_partition_only(topic: Topic, faults: Faults) -> None:
    with faults.add(Fault(api="Produce", topic=topic.name, partition=1, error="MESSAGE_TOO_LARGE")) as handle:
        assert topic.produce(1) == "MSG_SIZE_TOO_LARGE"
        assert delivered(topic.produce(0)) == 0
        assert (handle.wait_fired(1), handle.calls) == (1, 1)
    assert delivered(topic.produce(1)) == 0


def test_a_producer_retries_after_a_retriable_error(topic: Topic, faults: Faults) -> None:
    handle = faults.add(Fault(api="Produce", topic=topic.name, error="NOT_LEADER_OR_FOLLOWER", times=2))
    with faults.recorder as recorder:
        assert delivered(topic.produce(0, **{"retry.backoff.ms": 10})) == 0
        seen = [request.errors for request in recorder.requests(api="Produce", topic=topic.name)]
    assert seen == [["NOT_LEADER_OR_FOLLOWER"], ["NOT_LEADER_OR_FOLLOWER"], []]
    assert handle.fired == 2


def test_a_lost_response_loses_no_record(topic: Topic, faults: Faults) -> None:
    with faults.add(Fault(api="Produce", topic=topic.name, disconnect=True, times=1)) as handle:
        assert delivered(topic.produce(0, **{"enable.idempotence": True})) == 0
        assert handle.fired == 1
    assert delivered(topic.produce(0)) == 1, "written once"


def test_a_black_hole_affects_one_client(topic: Topic, faults: Faults) -> None:
    with faults.add(Fault(client_id="victim", api="Produce", blackhole=True)) as handle:
        about = {"client.id": "victim", "message.timeout.ms": 500}
        assert topic.produce(0, **about) == "_MSG_TIMED_OUT"
        assert delivered(topic.produce(0)) == 0
        assert handle.fired >= 1
    assert delivered(topic.produce(0, **{"client.id": "victim"})) == 1


def test_a_delay_of_the_response(topic: Topic, faults: Faults) -> None:
    with faults.add(Fault(api="Produce", topic=topic.name, delay_ms=250)), faults.recorder as recorder:
        assert delivered(topic.produce(0)) == 0
        (request,) = recorder.wait(1, api="Produce", topic=topic.name, outcome="answered")
    assert (request.elapsed_ms or 0) >= 250


def test_a_client_sees_a_throttle(topic: Topic, faults: Faults) -> None:
    throttled: list[Any] = []
    with faults.add(Fault(api="Produce", topic=topic.name, throttle_ms=120)):
        assert delivered(topic.produce(0, throttle_cb=throttled.append)) == 0
    assert [event.throttle_time for event in throttled] == [0.12]


def test_a_consumer_finds_a_corrupt_batch_but_the_disk_is_intact(topic: Topic, faults: Faults) -> None:
    delivered(topic.produce(0))
    with faults.add(Fault(topic=topic.name, corrupt=True)) as handle:
        consumer = topic.consumer(0, **{"check.crcs": True})
        failed = consumer.poll(TIMEOUT_S)
        assert failed is not None
        assert failed.error().code() == KafkaError._BAD_MSG
        assert handle.fired >= 1
    consumer.close()
    again = topic.consumer(0, **{"check.crcs": True})
    message = again.poll(TIMEOUT_S)
    assert message is not None
    assert (message.error(), message.value()) == (None, b"v")
    again.close()


def test_a_cluster_that_pretends_to_be_older(topic: Topic, faults: Faults) -> None:
    with faults.add(Fault(api_versions="2.3", client_id="old")) as handle, faults.recorder as recorder:
        assert delivered(topic.produce(0, **{"client.id": "old"})) == 0
        assert delivered(topic.produce(1)) == 0
        requests = recorder.requests(api="Produce", topic=topic.name)
        assert [(request.client_id, request.version) for request in requests] == [("old", 7), ("rdkafka", 10)]
        assert handle.fired >= 1


def test_a_group_joins_after_an_error(topic: Topic, faults: Faults) -> None:
    delivered(topic.produce(0))
    handle = faults.add(Fault(api="JoinGroup", group=topic.name, error="COORDINATOR_NOT_AVAILABLE", times=1))
    consumer = Consumer(
        {
            "bootstrap.servers": topic._cluster.bootstrap,
            "group.id": topic.name,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic.name])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is None
    consumer.close()
    assert handle.fired == 1


def test_a_forwarded_admin_request_may_fail_in_part(
    cluster: BarnabasCluster, admin: AdminClient, faults: Faults
) -> None:
    names = [f"t-{next(_numbers)}" for _ in range(2)]
    with faults.add(Fault(api="CreateTopics", topic=names[0], error="POLICY_VIOLATION")) as handle:
        created = admin.create_topics([NewTopic(name, 1, 1) for name in names])
        with pytest.raises(KafkaException) as refused:
            created[names[0]].result(TIMEOUT_S)
        assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION
        created[names[1]].result(TIMEOUT_S)
        assert handle.fired == 1
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    assert (names[0] in topics, names[1] in topics) == (False, True), "the faulted one was not carried out"


# Faults of nodes


def test_a_cut_link_removes_the_follower_from_the_isr_until_it_heals(topic: Topic, faults: Faults) -> None:
    with faults.node(0).cut_off(1) as handle:
        delivered(topic.produce(0))
        eventually("broker 1 is out of the ISR of broker 0's partition", lambda: topic.isr(0) == [0, 2])
        eventually("other links go on", lambda: topic.isr(2) == [0, 1, 2])
        assert handle.wait_fired() >= 1
        assert {node for node, _ in handle.ids} == {0, 1}, "cut at both ends"
    eventually("broker 1 is back", lambda: topic.isr(0) == [0, 1, 2])


def test_a_link_may_be_cut_one_way(topic: Topic, faults: Faults) -> None:
    with faults.node(1).cut_off(0, "to", mode="refuse"):
        eventually("broker 1 cannot fetch from 0", lambda: topic.isr(0) == [0, 2])
        eventually("broker 0 can from 1", lambda: topic.isr(1) == [0, 1, 2])
    eventually("broker 1 is back", lambda: topic.isr(0) == [0, 1, 2])


def test_a_broker_without_its_controller_is_fenced_and_returns(
    cluster: BarnabasCluster, admin: AdminClient, faults: Faults
) -> None:
    def live() -> set[int]:
        return set(admin.list_topics(timeout=TIMEOUT_S).brokers)

    with faults.node(2).cut_off("controller") as handle:
        assert {node for node, _ in handle.ids} == {2, 100}
        # Why not librdkafka: it may ask broker 2, which gets no push.
        eventually("broker 2 is fenced", lambda: listed_brokers(cluster.nodes[0].port) == 2)
        assert faults.node(2).heal() == 2
    eventually("broker 2 is back", lambda: live() == {0, 1, 2})


def test_a_slow_disk_slows_the_partitions_of_its_pattern(topic: Topic, faults: Faults) -> None:
    pattern = f"*/{topic.name}-0/*"
    with faults.node(0).slow_disk(300, operations=["write"], path=pattern) as handle, faults.recorder as recorder:
        for partition in (0, 1):
            delivered(topic.produce(partition, acks=1))
        (slow,) = recorder.requests(api="Produce", topic=topic.name, partition=0)
        assert (slow.elapsed_ms or 0) >= 300
        assert {event["operation"] for event in handle.events} == {"write"}
        assert all(f"/{topic.name}-0/" in event["path"] for event in handle.events)


def test_a_skewed_clock_shifts_timestamps_until_it_is_corrected(
    cluster: BarnabasCluster, admin: AdminClient, faults: Faults
) -> None:
    topic = Topic(cluster, admin, message_timestamp_type="LogAppendTime")

    def error_ms(partition: int) -> int:
        message = topic.produce(partition)
        assert isinstance(message, Message)
        return int(message.timestamp()[1]) - SystemClock().wall_ms()

    with faults.node(0).skew_clock(HOUR_MS):
        assert abs(error_ms(0) - HOUR_MS) < HOUR_MS / 2
        assert abs(error_ms(1)) < HOUR_MS / 2
    assert abs(error_ms(0)) < HOUR_MS / 2


def test_a_full_disk_ends_a_broker_and_the_others_continue(
    cluster: BarnabasCluster, topic: Topic, faults: Faults, tmp_path: Path
) -> None:
    (tmp_path / "incident.yaml").write_text("- {node: 2, disk_full: true}\n- record: true\n- wait_ms: 1\n")
    Scenario.load(tmp_path / "incident.yaml").run(faults)
    delivered(topic.produce(2))
    eventually("broker 2 ended with its last log directory", lambda: not cluster.nodes[2].is_running)
    delivered(topic.produce(2))
    faults.node(2).start()
    faults.recorder.stop()
    eventually("broker 2 is in sync", lambda: topic.isr(2) == [0, 1, 2])


def test_nodes_are_killed_paused_and_stopped(cluster: BarnabasCluster, topic: Topic, faults: Faults) -> None:
    node = faults.node(1)
    with node.paused():
        assert cluster.nodes[1].paused
    with node.down():
        assert not cluster.nodes[1].is_running
        assert delivered(topic.produce(1)) == 0
    with node.down(controlled=True):
        assert cluster.nodes[1].child is not None
        assert cluster.nodes[1].child.returncode == 0
    eventually("it is in sync", lambda: topic.isr(1) == [0, 1, 2])
