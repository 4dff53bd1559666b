"""A week passes for a real cluster and real clients: what expires has expired when the call returns."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from barnabas import testing
from barnabas.client.connection import NodeConnection
from barnabas.clock import ClockError, ClusterClock
from barnabas.clock.cluster_clock import BrokenError, ask_node
from barnabas.faults.pages import NodePage
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest
from tests.support.waiting import eventually

CONFIG = {
    "log.retention.ms": -1,  # records with the time of clients are old once the clock is ahead
    "producer.id.expiration.ms": 86_400_000,
    "log.cleaner.min.cleanable.ratio": "0.001",
    "offsets.retention.minutes": 10_080,
}
WEEK = "7d"


@pytest.fixture(scope="module")
def kafka() -> Iterator[testing.Cluster]:
    """Two brokers whose clock can be moved."""
    with testing.cluster(brokers=2, config=CONFIG) as running:
        yield running


def produce(kafka: testing.Cluster, topic: str, *pairs: tuple[str, str | None]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    for key, value in pairs:
        producer.produce(topic, value, key)
        assert producer.flush(20) == 0  # a batch for each, so that segments can be rolled between them


def offsets(kafka: testing.Cluster, topic: str) -> tuple[int, int]:
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap, "group.id": "none", "isolation.level": "read_uncommitted",
    })  # fmt: skip
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
    finally:
        consumer.close()
    return low, high


def pairs(kafka: testing.Cluster, topic: str, **settings: Any) -> list[tuple[str, str | None]]:
    """Every record of partition 0, as a consumer reads it."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "none", "enable.partition.eof": True, **settings}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[str, str | None]] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None
            if message.error():
                return found
            value = message.value()
            found.append((message.key().decode(), None if value is None else value.decode()))
    finally:
        consumer.close()


def test_a_week_of_retention_and_of_committed_offsets(kafka: testing.Cluster) -> None:
    week = kafka.create_topic("week", config={"retention.ms": 604_800_000})
    month = kafka.create_topic("month", config={"retention.ms": 2_592_000_000})
    for topic in (week, month):
        produce(kafka, topic, ("k", "1"), ("k", "2"))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([month])
    assert consumer.poll(20) is not None
    consumer.commit(asynchronous=False)
    consumer.close()
    before = kafka.clock.now()
    kafka.clock.advance("6d")
    assert offsets(kafka, week) == (0, 2)
    assert kafka.committed("reader") == {(month, 0): 1}
    after = kafka.clock.advance("1d1m")
    assert offsets(kafka, week) == (2, 2)
    assert offsets(kafka, month) == (0, 2)
    assert kafka.committed("reader") == {}
    assert timedelta(days=7) <= after - before < timedelta(days=7, minutes=10)


def test_compaction_waits_for_its_lag_and_tombstones_for_theirs(kafka: testing.Cluster) -> None:
    topic = kafka.create_topic("compacted", config={
        "cleanup.policy": "compact", "min.compaction.lag.ms": 7_200_000, "delete.retention.ms": 172_800_000,
        "segment.ms": 600_000, "message.timestamp.type": "LogAppendTime",
    })  # fmt: skip
    produce(kafka, topic, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None))
    kafka.clock.advance("1h")
    produce(kafka, topic, ("c", "1"))  # rolls: the clock of the broker stamps the records
    assert len(pairs(kafka, topic)) == 5
    kafka.clock.advance("1h30m")
    assert pairs(kafka, topic) == [("a", "2"), ("b", None), ("c", "1")]
    kafka.clock.advance("3d")
    produce(kafka, topic, ("d", "1"))
    kafka.clock.advance("3h")
    assert pairs(kafka, topic) == [("a", "2"), ("c", "1"), ("d", "1")]


def answers(kafka: testing.Cluster, request: Any, version: int) -> Iterator[Any]:
    """The answer of every broker."""
    for address in kafka.bootstrap.split(","):
        host, port = address.split(":")
        with NodeConnection(host, int(port), timeout_ms=20_000, client_id="test") as connection:
            yield connection.send(request, version)


def is_known(kafka: testing.Cluster, topic: str) -> bool:
    """Whether every broker has the metadata of the topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return all(answer.topics[0].error_code == 0 for answer in answers(kafka, request, 4))


def producer_ids(kafka: testing.Cluster, topic: str) -> set[int]:
    """The producers that the leader of partition 0 knows."""
    found: set[int] = set()
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    for answer in answers(kafka, request, 0):
        found |= {each.producer_id for each in answer.topics[0].partitions[0].active_producers}
    return found


def test_producer_ids_expire(kafka: testing.Cluster) -> None:
    topic = kafka.create_topic("idempotent", config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    producer.produce(topic, "v")
    assert producer.flush(20) == 0
    kafka.clock.advance("23h")
    assert len(producer_ids(kafka, topic)) == 1
    kafka.clock.advance("2h")
    assert producer_ids(kafka, topic) == set()


def test_a_transaction_times_out(kafka: testing.Cluster) -> None:
    topic = kafka.create_topic("transactional")
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "transactional.id": "t", "transaction.timeout.ms": 60_000,
    })  # fmt: skip
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, "aborted", "k")
    assert producer.flush(20) == 0
    kafka.clock.advance("50s")
    assert offsets(kafka, topic) == (0, 1)
    kafka.clock.advance("30s")
    assert offsets(kafka, topic) == (0, 2), "the marker is there"
    produce(kafka, topic, ("k", "after"))
    assert pairs(kafka, topic, **{"isolation.level": "read_committed"}) == [("k", "after")]
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)


def members(kafka: testing.Cluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    return len(admin.describe_consumer_groups([group])[group].result(20).members)


def test_members_without_heartbeats_leave_their_group(kafka: testing.Cluster) -> None:
    topic = kafka.create_topic("grouped")
    # Why: a consumer that asks a broker without it is assigned nothing, for long.
    eventually("every broker knows the topic", lambda: is_known(kafka, topic))
    consumer = KafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap.split(","), group_id="members", session_timeout_ms=45_000,
        heartbeat_interval_ms=30_000, metadata_max_age_ms=500,  # the broker that it asks first may not know the topic
    )  # fmt: skip

    def has_joined() -> bool:
        consumer.poll(100)
        return bool(consumer.assignment())

    try:
        eventually("the consumer joins", has_joined)
        kafka.clock.advance("30s")
        assert members(kafka, "members") == 1
        kafka.clock.advance("2m")
        assert members(kafka, "members") == 0
    finally:
        consumer.close(autocommit=False)


def test_a_walk_ends_beside_clients_that_write_all_the_time(kafka: testing.Cluster) -> None:
    topic = kafka.create_topic("busy")
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "transactional.id": "busy", "transaction.timeout.ms": 900_000,
    })  # fmt: skip
    producer.init_transactions(20)
    is_over, errors, count = threading.Event(), [], 0

    def write() -> None:
        nonlocal count
        try:
            while not is_over.is_set():
                producer.begin_transaction()
                producer.produce(topic, "v", "k")
                producer.commit_transaction(20)
                count += 1
        except KafkaException as error:
            errors.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    eventually("transactions are committed", lambda: count > 3)
    kafka.clock.advance("10m")
    is_over.set()
    writer.join(60)
    assert errors == []
    assert len(pairs(kafka, topic)) == count


def test_a_fetch_that_waits_is_answered(kafka: testing.Cluster) -> None:
    topic = kafka.create_topic("waited")
    produce(kafka, topic, ("k", "small"))
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap, "group.id": "none", "fetch.wait.max.ms": 290_000,
        "fetch.min.bytes": 100_000, "socket.timeout.ms": 300_000,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(consumer.poll(120)))
    reader.start()

    def is_answered() -> bool:
        kafka.clock.advance("5m")  # again, if the fetch came only now
        reader.join(5)
        return not reader.is_alive()

    eventually("it is answered", is_answered)
    consumer.close()
    assert found[0].value() == b"small"


def test_a_broker_that_starts_again_has_the_time_of_the_others(kafka: testing.Cluster) -> None:
    kafka.clock.advance("1h")
    kafka.stop(1)
    assert len(kafka.clock.look()) == 2, "the controller and the other broker"
    kafka.clock.advance("1h")
    kafka.start(1)
    states = kafka.clock.look()
    assert len(states) == 3
    assert len({state["offset_ms"] for state in states}) == 1


def test_one_walk_at_a_time(kafka: testing.Cluster) -> None:
    clock = ClusterClock(kafka.directory)
    with clock._alone(), pytest.raises(ClockError, match="is being moved already"):
        kafka.clock.advance("1s")


def test_a_paused_node_is_named(kafka: testing.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.clock.cluster_clock.PAGE_TIMEOUT_S", 1.0)
    kafka.pause(1)
    with pytest.raises(ClockError, match="broker-1 does not answer"):
        kafka.clock.advance("1h")
    kafka.resume(1)


def make_clock(directory: Path, busy: list[str]) -> ClusterClock:
    """The clock of a cluster of one node that is always busy, or never."""
    clock = ClusterClock(directory)
    clock._target = SimpleNamespace(pages=lambda: {0: NodePage(0, "broker", "127.0.0.1", 1)})
    state = {"node": 0, "role": "broker", "now_ms": 0, "offset_ms": 0, "next_due_in_ms": None, "busy": busy}

    def ask(_page: NodePage, _method: str, body: Any = None) -> dict[str, Any]:
        if body is not None:
            state["offset_ms"] = state["now_ms"] = body["offset_ms"]
        return state

    clock._ask = ask
    return clock


def test_a_walk_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    clock = make_clock(tmp_path, busy=[])
    clock.advance("1d")
    assert clock.advance(timedelta(hours=1), step="1m").timestamp() == 90_000
    assert clock.offset_ms() == 90_000_000
    with pytest.raises(ClockError, match="more than 100 years"):
        clock.advance("5200w", step=None) and clock.advance("5200w")


@pytest.mark.parametrize(("breaks", "is_left_out"), [(1, False), (3, True), (99, False)])
def test_a_node_that_ends_while_it_is_asked(tmp_path: Path, breaks: int, is_left_out: bool) -> None:
    """Its connection breaks; after that it may answer, refuse connections, or go on breaking them."""
    clock = make_clock(tmp_path, busy=[])
    clock._target = SimpleNamespace(pages=lambda: {i: NodePage(i, "broker", "127.0.0.1", 1) for i in range(2)})
    whole, failures = clock._ask, 0

    def ask(page: NodePage, method: str, body: Any = None) -> dict[str, Any]:
        nonlocal failures
        if page.node_id == 0:
            return whole(page, method, body)
        failures += 1
        if failures <= breaks:
            raise BrokenError("broker-1 does not answer")
        if is_left_out:
            raise ConnectionRefusedError
        return whole(page, method, body)

    clock._ask = ask
    if breaks == 99:
        with pytest.raises(ClockError, match="broker-1 does not answer"):
            clock.advance("1s")
    else:
        assert clock.advance("1s").timestamp() == 1


def test_a_connection_that_breaks_is_no_answer_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asking = ThreadPoolExecutor().submit(ask_node, NodePage(0, "broker", *listener.getsockname()), "GET", None)
        listener.accept()[0].close()
        with pytest.raises(BrokenError, match="broker-0 does not answer"):
            asking.result(30)


def test_steps_without_number_are_refused(tmp_path: Path) -> None:
    clock = make_clock(tmp_path, busy=[])
    with pytest.raises(ClockError, match="more than 100,000 steps"):
        clock.advance("365d", step="1m")
    with pytest.raises(ClockError, match="more than 100,000 steps"):
        clock.advance("1d", step="0ms")
    assert clock.offset_ms() == 0


def test_work_without_an_end_is_named(tmp_path: Path) -> None:
    clock = make_clock(tmp_path, busy=["transactions"])
    with pytest.raises(ClockError, match=r"broker-0 \(transactions\) is still busy after 0\.01 s"):
        clock.advance("1s", timeout_s=0.01)


def test_a_cluster_without_processes(tmp_path: Path) -> None:
    with pytest.raises(ClockError, match="no cluster runs in"):
        ClusterClock(tmp_path).now()
    with pytest.raises(ClockError, match="is not a cluster"):
        ClusterClock(tmp_path / "missing")
