"""Client metrics (KIP-714): subscriptions made with Apache Kafka's tool, and what clients push."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.support.cluster import BarnabasCluster, Target
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

Run = Callable[..., str]
Page = Callable[[str], dict[str, list[dict[str, str]]]]
TIMEOUT_S = 20


@pytest.fixture
def client_metrics(tools: KafkaTools, target: Target) -> Run:
    """Runs kafka-client-metrics against the cluster and returns its output."""

    def run(*arguments: str) -> str:
        return tools.run("kafka-client-metrics", "--bootstrap-server", target.bootstrap, *arguments).check().stdout

    return run


def test_kafka_client_metrics_alters_describes_lists_and_deletes(client_metrics: Run, unused_name: str) -> None:
    of_it = ("--name", unused_name)
    settings = (
        *("--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.coordinator."),
        *("--interval", "60000", "--match", "client_software_name=apache-kafka-java,client_id=etl-[0-9]+"),
    )
    assert "Altered client metrics config" in client_metrics("--alter", *of_it, *settings)
    eventually("it is listed", lambda: unused_name in client_metrics("--list").split())
    described = client_metrics("--describe", *of_it)
    assert f"Client metrics configs for {unused_name} are:" in described
    assert "metrics=org.apache.kafka.producer.,org.apache.kafka.consumer.coordinator." in described
    assert "interval.ms=60000" in described
    assert "match=client_software_name=apache-kafka-java,client_id=etl-[0-9]+" in described
    client_metrics("--alter", *of_it, "--interval", "")
    eventually("the interval is the default", lambda: "interval.ms=300000" in client_metrics("--describe", *of_it))
    assert "Deleted client metrics config" in client_metrics("--delete", *of_it)
    eventually("it is gone", lambda: unused_name not in client_metrics("--list").split())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--interval", "99"), "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        (("--match", "colour=red"), "Illegal client matching pattern: colour=red"),
        (("--match", "client_id=("), "Illegal client matching pattern: client_id=("),
    ],
)
def test_kafka_client_metrics_reports_what_is_invalid(
    tools: KafkaTools, target: Target, unused_name: str, arguments: tuple[str, str], error: str
) -> None:
    command = ("--bootstrap-server", target.bootstrap, "--alter", "--name", unused_name, *arguments)
    result = tools.run("kafka-client-metrics", *command)
    assert result.exit_code == 1
    assert error in result.stdout + result.stderr


# --- what clients push


@pytest.fixture
def page(target: Target) -> Page:
    """Returns the labels of what a client has pushed, by name, from the page of the only broker's metrics."""
    if not isinstance(target, BarnabasCluster):
        pytest.skip("Apache Kafka takes metrics of clients only with a plugin")
    address = f"http://127.0.0.1:{target.brokers[0].metrics_port}/metrics"

    def pushed_by(client_id: str) -> dict[str, list[dict[str, str]]]:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as response:
            families = text_string_to_metric_families(response.read().decode())
        found: dict[str, list[dict[str, str]]] = {}
        for family in families:
            for sample in family.samples:
                if sample.name.startswith("org_apache_kafka_") and sample.labels["client_id"] == client_id:
                    found.setdefault(sample.name, []).append(sample.labels)
        return found

    return pushed_by


@pytest.fixture
def subscribed(client_metrics: Run, unused_name: str) -> Iterator[str]:
    """A client id whose metrics are subscribed to."""
    match = f"client_id={unused_name}"
    client_metrics("--alter", "--name", unused_name, "--metrics", "*", "--interval", "200", "--match", match)
    eventually("it is known", lambda: unused_name in client_metrics("--list").split())
    yield unused_name
    client_metrics("--delete", "--name", unused_name)


def test_what_librdkafka_pushes_is_shown_until_it_closes(
    page: Page, subscribed: str, target: Target, create_topic: Run
) -> None:
    others = Producer({"bootstrap.servers": target.bootstrap, "client.id": f"{subscribed}-other"})
    producer = Producer({"bootstrap.servers": target.bootstrap, "client.id": subscribed})
    topic = create_topic()

    def has_produced() -> dict[str, list[dict[str, str]]]:
        for each in (producer, others):
            each.produce(topic, b"value")
            each.flush(TIMEOUT_S)
        return page(subscribed)

    eventually("it has pushed", lambda: "org_apache_kafka_producer_record_queue_time_avg" in has_produced())
    shown = page(subscribed)
    (labels,) = shown["org_apache_kafka_producer_record_queue_time_avg"]
    assert len(labels["client_instance_id"]) == 22
    assert {labels["node_id"] for labels in shown["org_apache_kafka_producer_node_request_latency_avg"]} >= {"0"}
    assert page(f"{subscribed}-other") == {}
    producer.close()
    others.close()
    eventually("it is gone", lambda: page(subscribed) == {})


def test_what_the_java_client_pushes_is_shown_until_it_closes(
    page: Page, subscribed: str, target: Target, tools: KafkaTools, create_topic: Run
) -> None:
    topic = create_topic()
    where = ("--bootstrap-server", target.bootstrap, "--command-property", f"client.id={subscribed}")
    read = ("--topic", topic, "--group", subscribed, "--from-beginning", "--max-messages", "1")
    name = "org_apache_kafka_consumer_poll_idle_ratio_avg"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: tools.run("kafka-console-consumer", *where, *read).check())
        try:
            eventually("it has pushed", lambda: name in page(subscribed) or running.done())
            shown = page(subscribed)
        finally:
            producer = Producer({"bootstrap.servers": target.bootstrap})
            producer.produce(topic, b"the end")
            assert producer.flush(TIMEOUT_S) == 0
            producer.close()
        assert "the end" in running.result().stdout
    assert {labels["group_id"] for labels in shown[name]} == {subscribed}
    assert "org_apache_kafka_consumer_coordinator_heartbeat_total" in shown
    eventually("it is gone", lambda: page(subscribed) == {})
