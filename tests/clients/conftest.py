"""One cluster of one broker for all client tests: each test uses topics and groups of its own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster import ApacheKafkaTarget, BarnabasCluster, Target
from tests.support.kafka_jars import kafka_runtime
from tests.support.waiting import eventually

_numbers = itertools.count()


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The cluster under test, running."""
    directory = tmp_path_factory.mktemp("cluster")
    if request.config.getoption("target") == "apache":
        with ApacheKafkaTarget(kafka_runtime(), directory) as node:
            yield node
    else:
        with BarnabasCluster(directory, broker_count=1, first_port=0) as cluster:
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
def create_topic(admin: AdminClient, unused_name: str) -> Callable[..., str]:
    """Creates a topic with an unused name and returns the name."""

    def create(partitions: int = 1, suffix: str = "", **config: str) -> str:
        name = unused_name + suffix
        topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin.create_topics([topic])[name].result(20)
        eventually("the broker knows the topic", lambda: name in admin.list_topics(timeout=20).topics)
        return name

    return create
