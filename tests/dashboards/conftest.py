"""A cluster of three brokers under load, and a Prometheus that scrapes it with the labels of our configuration."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.processes.ports import free_ports
from tests.support.cluster import BarnabasCluster
from tests.support.docker.images import ROOT
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import eventually

TOPIC = "pictures"
GROUP = "viewers"
LAGGING_GROUP = "stragglers"
PARTITIONS = 6
SCRAPE_INTERVAL = "2s"
TIMEOUT_MS = 60_000


class Load:
    """Producers (plain, idempotent, transactional) and readers of a group, until stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=job) for job in (self._produce, self._transact, self._consume)]
        self.failures: list[str] = []

    def start(self) -> None:
        self._commit_the_start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _commit_the_start(self) -> None:
        """Commit the start offset for a group that reads nothing, so that its lag grows."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": LAGGING_GROUP})
        consumer.commit(offsets=[Position(TOPIC, 0, 0)], asynchronous=False)
        consumer.close()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "client.id": "painter", "linger.ms": 5})
        while not self._stopping.wait(0.02):
            for number in range(20):
                producer.produce(TOPIC, b"x" * 200, str(number), on_delivery=self._delivered)
            producer.poll(0)
        producer.flush(30)

    def _transact(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": "restorer"})
        producer.init_transactions(30)
        while not self._stopping.wait(0.1):
            producer.begin_transaction()
            producer.produce(TOPIC, b"whole", on_delivery=self._delivered)
            producer.commit_transaction(30)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe([TOPIC])
        while not self._stopping.is_set():
            consumer.consume(500, 0.2)
        consumer.close()

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))


class Prometheus:
    """A Prometheus that scrapes a cluster, with our labels and alert rules."""

    def __init__(self, cluster: BarnabasCluster, directory: Path) -> None:
        self._directory = directory
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._write_config(cluster)
        self._process: subprocess.Popen[bytes] | None = None

    def _write_config(self, cluster: BarnabasCluster) -> None:
        """Write our configuration, with this cluster's addresses instead of docker-compose's."""
        config = yaml.safe_load((ROOT / "dashboards" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": SCRAPE_INTERVAL, "evaluation_interval": SCRAPE_INTERVAL}
        config["rule_files"] = [str(ROOT / "dashboards" / "alerts.yml")]
        for job, nodes in zip(config["scrape_configs"], (cluster.brokers, [cluster.controller]), strict=True):
            (static,) = job["static_configs"]
            del job["relabel_configs"]  # they make names from addresses, and all addresses are the same here
            job["static_configs"] = [
                {
                    "targets": [f"127.0.0.1:{node.metrics_port}"],
                    "labels": {
                        **static["labels"],
                        "instance": node.name,
                        "kubernetes_pod_name": f"barnabas-{node.name}",
                    },
                }
                for node in nodes
            ]
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Prometheus:
        command = [
            "prometheus",
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'tsdb'}",
            f"--web.listen-address={self.address}",
        ]
        with (self._directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(tied_to_parent(command), stdout=log, stderr=log)
        eventually("Prometheus is ready", self._is_ready)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        end_process(self._process)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def ask(self, what: str, **parameters: str) -> Any:
        """Return the `data` of an answer of its API."""
        address = f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the present series of an expression."""
        result: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return result


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    config = {
        "barnabas.lock.counts": "true",  # so that the rows of locks are there, too
        "barnabas.metrics.port": "0",
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.num.partitions": "6",
    }
    directory = tmp_path_factory.mktemp("monitored")
    with BarnabasCluster(directory, broker_count=3, first_port=0, config=config) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        eventually("the topic is known", lambda: TOPIC in admin.list_topics(timeout=20).topics)
        yield running


@pytest.fixture(scope="session")
def load(cluster: BarnabasCluster) -> Iterator[Load]:
    running = Load(cluster.bootstrap)
    running.start()
    yield running
    running.stop()
    assert running.failures == []


@pytest.fixture(scope="session")
def prometheus(cluster: BarnabasCluster, load: Load, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with Prometheus(cluster, tmp_path_factory.mktemp("prometheus")) as running:
        yield running
