"""A short run as part of the tests; `make eos` is a long one. The seed is always printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import Node
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from tests.eos.applications import INPUT, StreamsApplication
from tests.eos.proof import count_problems
from tests.eos.reading import read_all
from tests.eos.run import CONFIG, run
from tests.support.access import Access
from tests.support.cluster import BarnabasCluster
from tests.support.coordinators import ask
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.waiting import eventually

SECURED_KILLS = 3
MOVES = ("classic", "streams", "classic")
ONE_BROKER = {"default.replication.factor": "1", "min.insync.replicas": "1"}
STEP_TIMEOUT_MS = 120_000


def test_every_effect_happens_exactly_once_under_kills(
    apache_runtime: KafkaRuntime, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills, seed = request.config.getoption("eos_kills"), request.config.getoption("seed")
    print(f"{kills} kills of seed {seed}")
    run(tmp_path / "cluster", kills, seed, print)


def test_every_effect_happens_exactly_once_on_a_secured_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With one client library, and only a few kills."""
    seed = request.config.getoption("seed")
    print(f"seed {seed}")
    run(tmp_path / "cluster", SECURED_KILLS, seed, print, ("librdkafka",), security="sasl_ssl")


def groups_of(broker: Node) -> list[tuple[str, str, str]]:
    """The id, type and state of each group that the broker coordinates."""
    answer = ask(broker, ListGroupsRequest(), ListGroupsRequest.MAX_VERSION)
    return [(group.group_id, group.group_type, group.group_state) for group in answer.groups]


def test_an_application_moves_to_a_streams_group_and_back_with_its_offsets_and_state(
    apache_runtime: KafkaRuntime, tmp_path: Path
) -> None:
    """As Kafka describes it: all processes stop, the group becomes empty, and they start with the other protocol."""
    config = {**CONFIG, **ONE_BROKER}
    with BarnabasCluster(tmp_path / "cluster", broker_count=1, first_port=0, config=config) as cluster:
        access = Access(cluster.directory, cluster.bootstrap)
        (tmp_path / "application").mkdir()
        application = StreamsApplication("mover", tmp_path / "application", access, 1)
        client = access.librdkafka()
        admin = AdminClient(client)
        for created in admin.create_topics([NewTopic(name, 2, 1) for name in (INPUT, application.output)]).values():
            created.result(20)
        producer = Producer(client)

        def count() -> int:
            return sum(map(len, read_all(client, application.output, 2).values()))

        for turn, application.protocol in enumerate(MOVES, 1):
            for number in range(20):
                producer.produce(INPUT, f"{turn}:{number}", f"key-{number % 3}")
            assert producer.flush(20) == 0
            application.start_missing()
            try:
                what = f"the application counts as {application.protocol}"
                eventually(what, lambda t=turn: count() == 20 * t, STEP_TIMEOUT_MS)
            finally:
                application.stop()
            empty = (application.group, application.protocol, "Empty")
            eventually("the group is empty", lambda e=empty: e in groups_of(cluster.brokers[0]), STEP_TIMEOUT_MS)
        assert not count_problems(read_all(client, INPUT, 2), read_all(client, application.output, 2))
