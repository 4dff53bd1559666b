"""Three brokers, one of them paused, so that a produce with acks=all waits for it; and a browser."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.live_page.browser import Browser, browser
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

PATIENT = {
    # No broker leaves an ISR or is fenced, however long it is silent.
    "replica.lag.time.max.ms": "600000",
    "broker.session.timeout.ms": "600000",
}
#: A client id with HTML in it.
CLIENT = "<img src=x onerror=\"document.title='taken over'\">&amp;"
TOPIC = "orders"
LEADER, STALLED = 0, 2


@dataclass(slots=True)
class Stalled:
    """A cluster with a paused broker 2, for which a produce waits on broker 0."""

    cluster: BarnabasCluster
    producer: Producer

    def url(self, node_id: int = LEADER, path: str = "/live") -> str:
        """Return the address of a process's page."""
        node = self.cluster.nodes[node_id]
        return f"http://{node.host}:{node.metrics_port}{path}"

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Send a signal to a process, such as SIGSTOP."""
        self.cluster.signal_node(self.cluster.nodes[node_id], number)


@pytest.fixture(scope="session")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stalled]:
    directory = tmp_path_factory.mktemp("live")
    with BarnabasCluster(directory, broker_count=3, first_port=0, config=PATIENT) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, 1, replica_assignment=[[LEADER, 1, STALLED]])
        admin.create_topics([topic])[TOPIC].result(30)
        config: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": CLIENT,
            "linger.ms": 0,
            "message.timeout.ms": 600_000,
            "request.timeout.ms": 300_000,
            "socket.timeout.ms": 300_000,  # otherwise the client sends it again after a minute, and two wait
        }
        producer = Producer(config)
        _produce_one(producer)
        made = Stalled(cluster, producer)
        made.signal(STALLED, signal.SIGSTOP)
        producer.produce(TOPIC, "not on three disks yet", partition=0)
        producer.poll(0)
        yield made
        made.signal(STALLED, signal.SIGCONT)
        assert producer.flush(30) == 0, "what waited was answered in the end"


def _produce_one(producer: Producer) -> None:
    errors: list[Any] = []
    producer.produce(TOPIC, "x", partition=0, on_delivery=lambda error, _: errors.append(error))
    eventually("the first is acknowledged", lambda: producer.poll(0.1) and errors == [None])


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened
