"""A secured Apache Kafka for the clients that load a secured Barnabas, which test_workloads.py has."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from benchmarks import systems
from benchmarks.bench import admin_of, create_topic
from benchmarks.load import clients
from benchmarks.report.figures import OURS
from benchmarks.security.access import CIPHER_SUITE, OPEN, USER
from benchmarks.systems import SETTINGS, Kind, apache, barnabas, peer, running
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import SMALL_JVM


def test_a_secured_apache_kafka_serves_a_user_with_rules(
    apache_runtime: KafkaRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((clients, "CLIENT_JVM"), (clients, "MANY_CLIENTS_JVM"), (systems, "SERVER_JVM")):
        monkeypatch.setattr(module, name, SMALL_JVM)  # since they run for seconds
    with running(apache(apache_runtime)(tmp_path, Kind(is_secured=True), SETTINGS)) as system:
        assert system.access.java["ssl.cipher.suites"] == CIPHER_SUITE
        assert f'username="{USER}"' in system.access.java["sasl.jaas.config"]
        create_topic(admin_of(system), "bench-1", 1)
        moved = clients.produce(
            apache_runtime, system.bootstrap, "bench-1", 500, 100, "acks=1", client=system.access.java
        )
        assert moved.mb_per_s > 0
        read = clients.read_in_groups(apache_runtime, system.bootstrap, "bench-1", 1, 1, 500, 1, system.access.java)
        assert read.mb_per_s > 0
        with pytest.raises(KafkaException):
            OPEN.admin(system.bootstrap).list_topics(timeout=1)


def test_another_barnabas_has_its_own_directory_and_settings(tmp_path: Path) -> None:
    one = barnabas()(tmp_path / "0", Kind(), SETTINGS)
    other = one.beside("acls", {"a": "b"})
    assert (other.directory, other.settings) == (tmp_path / "0-acls", {**SETTINGS, "a": "b"})
    assert (one.directory, one.settings, other.name) == (tmp_path / "0", SETTINGS, OURS)


def test_a_broker_of_another_make_is_one_open_broker(tmp_path: Path) -> None:
    assert peer("other", ["other"])(tmp_path, Kind(), SETTINGS).name == "other"
    with pytest.raises(AssertionError):
        peer("other", ["other"])(tmp_path, Kind(brokers=3), SETTINGS)
