"""`barnabas.testing.cluster`: running.py, and reading.py through it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from barnabas.cluster import ClusterError
from barnabas.faults import Fault
from barnabas.testing import Cluster, Expected, StartError, cluster
from barnabas.testing.running import Settings
from tests.support.processes import await_ends
from tests.support.waiting import eventually

TIMEOUT_S = 30


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary directories; nothing else is in it."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return directory


def produce(kafka: Cluster, topic: str, *contents: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for content in contents:
        producer.produce(topic, content)
    assert producer.flush(30) == 0


def test_settings_are_written_as_in_server_properties() -> None:
    wanted = Settings.of(2, {"b": True, "a": 1, "c": "x"})
    assert wanted == Settings(2, (("a", "1"), ("b", "true"), ("c", "x")))


# Life


def test_a_closed_cluster_leaves_nothing_behind(temporary: Path) -> None:
    with cluster(config={"num.io.threads": 2}) as kafka:
        assert kafka.directory.parent == temporary
        assert "num.io.threads=2" in (kafka.directory / "broker-0" / "server.properties").read_text()
        for url in kafka.metrics_urls:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:
                assert page.status == 200
        assert kafka.pids.keys() == {0, 100}
        descriptors = [os.pidfd_open(pid) for pid in kafka.pids.values()]
    await_ends(descriptors)
    assert list(temporary.iterdir()) == []
    kafka.close()


def test_a_killed_owner_leaves_nothing_behind(temporary: Path) -> None:
    script = """
        import os, signal, sys
        from barnabas.testing import cluster
        with cluster() as kafka:
            print(*kafka.pids.values(), flush=True)
            signal.pause()
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        descriptors = [os.pidfd_open(int(pid)) for pid in owner.stdout.readline().split()]
        owner.kill()
    await_ends(descriptors)
    eventually("the supervisor removed the directory", lambda: not list(temporary.iterdir()))


def test_a_cluster_that_cannot_start_says_why(temporary: Path) -> None:
    with (
        pytest.raises(StartError, match=r"^barnabas: Invalid value 0 for configuration num.io.threads"),
        cluster(config={"num.io.threads": 0}),
    ):
        pass
    assert list(temporary.iterdir()) == []


def test_an_error_in_the_block_is_raised(temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), cluster():
        _ = 1 / 0
    assert list(temporary.iterdir()) == []


# Nodes and logs


def test_nodes_are_killed_and_started_and_their_logs_are_read() -> None:
    with cluster(brokers=2) as kafka:
        topic = kafka.create_topic("orders", config={"min.insync.replicas": 1})
        assert topic.startswith("orders-")
        assert "broker-1" in kafka.logs()
        kafka.forget_logs()
        assert kafka.logs() == {}
        before = kafka.pids[0]
        kafka.kill(0)
        with pytest.raises(ClusterError, match="broker-0 is not running"):
            kafka.pause(0)
        produce(kafka, topic, "while one is dead")
        kafka.assert_produced(topic, "while one is dead", timeout=TIMEOUT_S)
        kafka.start(0)
        assert kafka.pids[0] != before
        assert "broker-0" in kafka.logs()
        kafka.pause(1)
        kafka.resume(1)
        kafka.stop(1)
        with pytest.raises(ClusterError, match="there is no node 7"):
            kafka.start(7)


def test_faults_can_be_added(kafka: Cluster, topic: str) -> None:
    with kafka.faults.add(Fault(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=2)) as fault:
        produce(kafka, topic, "at the third try")
        assert fault.fired == 2
    assert [record.text for record in kafka.records(topic)] == ["at the third try"]


# Topics, records, groups


def test_topic_names_are_unique_unless_fresh_is_false(kafka: Cluster) -> None:
    first, second = (kafka.create_topic("test_x[ä/1]") for _ in range(2))
    assert first != second
    assert first.startswith("test_x-1-")
    assert kafka.create_topic("just-so", partitions=3, fresh=False) == "just-so"
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        kafka.create_topic("just-so", fresh=False)
    kafka.set_topic_config("just-so", retention_ms=1234)
    kafka.delete_topic("just-so")


def test_records_waits_for_a_count(kafka: Cluster, topic: str) -> None:
    produce(kafka, topic, "a", "b")
    assert sorted(record.text for record in kafka.records(topic, count=2)) == ["a", "b"]
    with pytest.raises(AssertionError, match=r"expected 3 records within 0.1 s. .* has 2 records"):
        kafka.records(topic, count=3, timeout=0.1)


def test_assert_produced(kafka: Cluster, topic: str) -> None:
    produce(kafka, topic, '{"n": 1}', "a")
    assert len(kafka.assert_produced(topic, {"n": 1}, Expected(value="a", key=None), exactly=True)) == 2
    with pytest.raises(AssertionError, match="no record matches value='b'"):
        kafka.assert_produced(topic, "a", "b", timeout=0)
    with pytest.raises(AssertionError, match=r"unexpected: .* value='\{\"n\": 1\}'"):
        kafka.assert_produced(topic, "a", exactly=True)
    with pytest.raises(AssertionError, match="not-there has 0 records"):
        kafka.assert_produced("not-there", "a", timeout=0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_committed_offsets_and_members_of_a_group(kafka: Cluster, topic: str, protocol: str) -> None:
    produce(kafka, topic, "a", "b", "c")
    assert kafka.committed(topic) == {}
    with pytest.raises(AssertionError, match=rf"group {topic} is not STABLE with 2 members, but .* with 0"):
        kafka.wait_stable(topic, members=2, timeout=0)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": topic,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        assert len(consumer.consume(3, TIMEOUT_S)) == 3
        consumer.commit(asynchronous=False)
        assert sum(kafka.committed(topic).values()) == 3
        assert list(kafka.wait_stable(topic, members=1).values()) == [[(topic, 0), (topic, 1)]]
    finally:
        consumer.close()
