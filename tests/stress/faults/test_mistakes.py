"""Each fault of mistakes.py once, on an idle cluster: all acknowledged records survive.

`make stress` causes them under load, among the other faults.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from tests.eos.reading import read_all
from tests.stress.cluster import BROKERS, PARTITIONS, TOPIC, TOPIC_CONFIG, StressCluster
from tests.stress.faults.mistakes import Mistakes
from tests.stress.run import is_whole
from tests.support.waiting import eventually

RECORDS = 20  # a partition
TIMEOUT_S = 30
HEAL_TIMEOUT_MS = 60_000
KINDS = sorted(kind.__name__ for kind in Mistakes(StressCluster(Path(), None, None), random.Random(0)).kinds)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StressCluster]:
    with StressCluster(tmp_path_factory.mktemp("mistakes"), None, None) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS, config=TOPIC_CONFIG)])[TOPIC].result(TIMEOUT_S)
        producer = Producer({**settings, "acks": "all"})
        for partition in range(PARTITIONS):
            for number in range(RECORDS):
                producer.produce(TOPIC, f"{partition}-{number}", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        yield cluster


@pytest.fixture(scope="module")
def mistakes(cluster: StressCluster) -> Mistakes:
    return Mistakes(cluster, random.Random(1))


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_lost(cluster: StressCluster, mistakes: Mistakes, name: str) -> None:
    fault = next(kind for kind in mistakes.kinds if kind.__name__ == name)()
    fault.begin()
    fault.end()
    for node in cluster.brokers:
        with NodeConnection(node.host, node.port, timeout_ms=TIMEOUT_S * 1000) as connection:
            eventually(f"whole ISRs, says {node.name}", lambda c=connection: is_whole(c), HEAL_TIMEOUT_MS)  # type: ignore[misc]
    assert {node.name: node.last_words() for node in cluster.nodes.values() if not node.is_running} == {}
    found = read_all(cluster.access.librdkafka(), TOPIC, PARTITIONS)
    expected = {partition: [f"{partition}-{number}" for number in range(RECORDS)] for partition in range(PARTITIONS)}
    assert {partition: [record.value for record in records] for partition, records in found.items()} == expected
