"""Values are right: a known load on a real broker, compared with the client's own numbers."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.processors import RUN_MAX
from barnabas.common.clock import SystemClock
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

RECORDS = 700
SIZE = 100
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Page:
    """One scrape: series by name and labels, in one of their spellings."""

    def __init__(self, text: str) -> None:
        self.samples: list[tuple[str, dict[str, str], float]] = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def __call__(self, name: str, **labels: str) -> float:
        """Return the sum of the series of that name with these labels; "" stands for a missing label."""
        found = [
            value
            for sample, has, value in self.samples
            if sample == name and all(has.get(key, "") == wanted for key, wanted in labels.items())
        ]
        return sum(found)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    config = {"barnabas.metrics.port": "0"}
    with BarnabasCluster(tmp_path_factory.mktemp("values"), broker_count=1, first_port=0, config=config) as running:
        yield running


@pytest.fixture(scope="module")
def scrape(cluster: BarnabasCluster) -> Callable[[], Page]:
    address = f"http://127.0.0.1:{cluster.brokers[0].metrics_port}/metrics"

    def get() -> Page:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return Page(answer.read().decode())

    return get


def create(cluster: BarnabasCluster, name: str, partitions: int = 1) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
    eventually("the broker knows the topic", lambda: name in admin.list_topics(timeout=20).topics)
    return name


class Client:
    """A producer that keeps librdkafka's statistics of its own requests."""

    def __init__(self, cluster: BarnabasCluster, client_id: str) -> None:
        self.told: dict[str, Any] = {}
        self.producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": client_id,
                "statistics.interval.ms": 100,
                "stats_cb": self._tell,
                "linger.ms": 1,
                "batch.num.messages": 10,
                "acks": "1",
                "partitioner": "consistent",
            }
        )

    def _tell(self, text: str) -> None:
        self.told = json.loads(text)

    def brokers(self) -> list[dict[str, Any]]:
        return [broker for broker in self.told.get("brokers", {}).values() if broker["nodeid"] >= 0]

    def requests(self) -> int:
        """Return the number of answered Produce requests."""
        self.producer.poll(0.1)
        return sum(broker["req"].get("Produce", 0) for broker in self.brokers())


def test_counts_sizes_and_times_are_what_the_producer_saw(cluster: BarnabasCluster, scrape: Callable[[], Page]) -> None:
    topic = create(cluster, "known")
    before = scrape()
    client, clock = Client(cluster, "known-producer"), SystemClock()
    started_ns = clock.monotonic_ns()
    for number in range(RECORDS):
        client.producer.produce(topic, b"v" * SIZE, b"k%03d" % number, partition=0)
    assert client.producer.flush(30) == 0
    took_ms = (clock.monotonic_ns() - started_ns) / 1e6
    metrics, requests = "kafka_server_brokertopicmetrics", "kafka_network_requestmetrics"

    def both_have_counted() -> Page | None:
        """Return the page; None while the broker has not recorded all, or the client's numbers are old ones."""
        page, counted = scrape(), client.requests()
        for name, labels in (
            (f"{metrics}_totalproducerequests_total", {"topic": ""}),  # when it has arrived
            (f"{requests}_requests_total", {"request": "Produce"}),  # when its response is sent
        ):
            if page(name, **labels) - before(name, **labels) != counted:
                return None
        return page if counted else None

    after = eventually("the broker and the client have counted the same", both_have_counted)
    sent = client.requests()

    def grew(name: str, **labels: str) -> float:
        return after(name, **labels) - before(name, **labels)

    for label in ("", topic):
        assert grew(f"{metrics}_messagesin_total", topic=label) == RECORDS
        assert grew(f"{metrics}_messagesinpersec", topic=label) == RECORDS
        assert grew(f"{metrics}_bytesin_total", topic=label) == after("kafka_log_log_size", topic=topic)
        assert grew(f"{metrics}_totalproducerequests_total", topic=label) == sent
    assert after("kafka_log_log_logendoffset", topic=topic) == RECORDS
    assert grew(f"{requests}_requests_total", request="Produce") == sent
    assert grew(f"{requests}_errors_total", request="Produce", error="NONE") == sent
    for stage in ("requestqueue", "local", "remote", "throttle", "responsequeue", "responsesend", "total"):
        assert grew(f"{requests}_{stage}timems_count", request="Produce") == sent
    stages = sum(
        grew(f"{requests}_{stage}timems_sum", request="Produce")
        for stage in ("requestqueue", "local", "remote", "responsequeue", "responsesend")
    )
    total = grew(f"{requests}_totaltimems_sum", request="Produce")
    assert stages == pytest.approx(total, rel=1e-6), "the stages are the whole way"
    assert 0 < total < took_ms * RUN_MAX, "never more requests of a connection at a time, and there is one connection"
    assert grew(f"{requests}_request_total_time_seconds_sum", request="Produce") == pytest.approx(total / 1000)
    assert grew(f"{requests}_request_total_time_seconds_bucket", request="Produce", le="+Inf") == sent

    # Batches and records, as in the log
    assert grew("barnabas_produce_batch_bytes_sum") == after("kafka_log_log_size", topic=topic)
    assert grew("barnabas_produce_batch_records_sum") == RECORDS
    assert grew("barnabas_produce_record_bytes_count") == RECORDS
    assert grew("barnabas_produce_batch_records_bucket", le="10") == grew("barnabas_produce_batch_records_count")

    # The client, by its id
    client_id = {"client_id": "known-producer"}
    assert after("barnabas_client_requests_total", **client_id) >= sent
    bytes_sent = sum(broker["txbytes"] for broker in client.brokers())
    assert after("barnabas_client_request_bytes_total", **client_id) == pytest.approx(bytes_sent, rel=0.01)
    assert after("kafka_server_produce_byte_rate", **client_id) > RECORDS * SIZE / 60


def test_bytes_out_are_those_of_a_consumer(cluster: BarnabasCluster, scrape: Callable[[], Page]) -> None:
    topic = create(cluster, "read")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(RECORDS):
        producer.produce(topic, b"v" * SIZE)
    assert producer.flush(30) == 0
    before = scrape()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([Position(topic, 0, 0)])
    assert len(consumer.consume(RECORDS, 30)) == RECORDS
    consumer.commit(offsets=[Position(topic, 0, RECORDS - 7)], asynchronous=False)
    eventually(
        "the lag is what was not committed",
        lambda: scrape()("kafka_consumergroup_lag", consumergroup="readers", topic=topic) == 7,
    )
    consumer.close()
    after = scrape()
    name = "kafka_server_brokertopicmetrics_bytesout_total"
    for label in ("", topic):
        assert after(name, topic=label) - before(name, topic=label) == after("kafka_log_log_size", topic=topic)
    requests = "kafka_network_requestmetrics_requests_total"
    fetches = after(requests, request="Fetch")
    assert fetches == after(requests, request="FetchConsumer") + after(requests, request="FetchFollower")
    assert after("kafka_server_brokertopicmetrics_totalfetchrequests_total", topic=topic) >= 1
    assert after("kafka_consumergroup_current_offset", consumergroup="readers", topic=topic) == RECORDS - 7
    assert after("kafka_server_group_coordinator_metrics_offset_commit_count") >= 1


def test_connections_come_and_go(cluster: BarnabasCluster, scrape: Callable[[], Page]) -> None:
    name = "kafka_server_socket_server_metrics_connections"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.list_topics(timeout=20)

    def mine() -> float | None:
        """Return the number of confluent-kafka's connections; None if it changed during the scrape."""
        page = scrape()
        if page("kafka_server_socket_server_metrics_connection_count") != page(name):
            return None
        return page(name, clientSoftwareName="confluent-kafka-python")

    count = eventually("it is counted by its software", mine)
    del admin
    eventually("it is gone", lambda: (now := mine()) is not None and now < count)


def test_errors_are_counted_by_their_codes(cluster: BarnabasCluster, scrape: Callable[[], Page]) -> None:
    name = "kafka_network_requestmetrics_errors_total"
    labels = {"request": "Metadata", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    before = scrape()(name, **labels)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "allow.auto.create.topics": False})
    admin.list_topics("there-is-no-such-topic", timeout=20)
    assert scrape()(name, **labels) > before
