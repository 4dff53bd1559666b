"""The bytes of Kafka's consumer protocol, as members write and read them."""

from __future__ import annotations

from barnabas.broker.coordinators.classic.consumer_protocol import read_assignment, subscribed_topics
from tests.simulation.load.clients.classic_member import assigned, assignment, subscription


def test_an_assignment_is_its_bytes() -> None:
    assert assigned(assignment("topic", range(1, 6, 2))) == [1, 3, 5]
    assert assigned(assignment("topic", range(0))) == assigned(b"") == []


def test_the_broker_reads_what_members_write() -> None:
    assert subscribed_topics(subscription("topic")) == {"topic"}
    assert read_assignment(assignment("topic", range(2))).partitions == {"topic": frozenset({0, 1})}
