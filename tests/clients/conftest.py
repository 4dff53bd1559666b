"""One cluster of one broker for all client tests: each test uses topics and groups of its own.

Where replication matters (REPLICATED) every test that uses the cluster runs twice: on one broker, and on three with all
topics, the internal ones too, in three replicas. What takes no time on one broker takes replication rounds on three.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.support.cluster import ApacheKafkaTarget, BarnabasCluster, Target
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.waiting import eventually

_numbers = itertools.count()

REPLICATED = {"test_transactions", "test_idempotence", "test_groups"}
BROKERS_MAX = 3
METADATA_VERSION = 9
TIMEOUT_MS = 20_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of these modules on one broker and on three."""
    if "target" not in metafunc.fixturenames or metafunc.module.__name__.rpartition(".")[2] not in REPLICATED:
        return
    counts = [1] if metafunc.config.getoption("target") == "apache" else [1, BROKERS_MAX]
    names = [f"{count} broker{'s' if count > 1 else ''}" for count in counts]
    metafunc.parametrize("target", counts, ids=names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The cluster under test, running."""
    directory = tmp_path_factory.mktemp("cluster")
    if request.config.getoption("target") == "apache":
        with ApacheKafkaTarget(kafka_runtime(), directory) as node:
            yield node
    else:
        with BarnabasCluster(directory, broker_count=getattr(request, "param", 1), first_port=0) as cluster:
            yield cluster


@pytest.fixture(scope="session")
def admin(target: Target) -> AdminClient:
    """confluent-kafka's admin client."""
    return AdminClient({"bootstrap.servers": target.bootstrap})


@pytest.fixture
def unused_name(request: pytest.FixtureRequest) -> str:
    """A name for a topic or a group that no other test uses."""
    return f"{re.sub('[^A-Za-z0-9]+', '-', request.node.name).strip('-')}-{next(_numbers)}"


@pytest.fixture
def create_topic(admin: AdminClient, target: Target, unused_name: str) -> Callable[..., str]:
    """Creates a topic with an unused name, with a replica on each broker, and returns the name."""
    replicas = len(target.bootstrap.split(","))

    def create(partitions: int = 1, suffix: str = "", **config: str) -> str:
        name = unused_name + suffix
        named = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, replicas, config=named)
        admin.create_topics([topic])[name].result(20)
        for address in target.bootstrap.split(","):
            eventually(f"the broker at {address} knows the topic", lambda at=address: _has_topic(at, name))
        return name

    return create


def _has_topic(address: str, name: str) -> bool:
    """Whether this broker's metadata has a topic. The push of a new topic reaches each broker at its own time."""
    host, _, port = address.rpartition(":")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    with NodeConnection(host, int(port), timeout_ms=TIMEOUT_MS) as connection:
        (topic,) = connection.send(request, METADATA_VERSION).topics
    return not topic.error_code
