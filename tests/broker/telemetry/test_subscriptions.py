"""Which metrics a client is to push, and the ids of subscriptions."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.telemetry.subscriptions import Attributes, Subscriptions, Wanted
from barnabas.config.resources.client_metrics import ClientMetricsConfig

CLIENT: Attributes = {"client_id": "etl-7", "client_software_name": "librdkafka", "client_source_port": "5000"}
DEFAULT_MS = 300_000


def subscriptions(**texts: dict[str, str]) -> Subscriptions:
    """Subscriptions by name, each with the texts of its config."""
    made = Subscriptions()
    for name, overrides in texts.items():
        made.update(name, ClientMetricsConfig(overrides))
    return made


def wanted(**texts: dict[str, str]) -> Wanted:
    return subscriptions(**texts).current.wanted(CLIENT)


def test_without_a_subscription_nothing_is_wanted() -> None:
    assert wanted() == Wanted((), DEFAULT_MS)
    assert not wanted().has("org.apache.kafka.producer.x")


def test_all_that_match_count_together_at_the_shortest_interval() -> None:
    of_all = {"metrics": "b.,a.", "interval.ms": "5000"}
    of_etl = {"metrics": "c,a.", "match": "client_id=etl-[0-9]+,client_software_name=librdkafka"}
    of_others = {"metrics": "d", "interval.ms": "100", "match": "client_id=etl"}
    found = wanted(x=of_all, y=of_etl, z=of_others)
    assert found == Wanted(("a.", "b.", "c"), 5000)
    assert [name for name in ("a.x", "ax", "cx", "d") if found.has(name)] == ["a.x", "cx"]


def test_an_interval_above_the_default_is_the_default_as_in_kafka() -> None:
    assert wanted(x={"metrics": "a", "interval.ms": "3600000"}).interval_ms == DEFAULT_MS


def test_a_star_stands_for_all_metrics() -> None:
    found = wanted(x={"metrics": "a"}, y={"metrics": "*,b"})
    assert found.metrics == ("*",)
    assert found.has("anything")


def test_an_attribute_that_is_not_known_matches_nothing() -> None:
    assert wanted(x={"metrics": "a", "match": "client_source_address=.*"}).metrics == ()


def test_changes_and_deletions_make_new_versions() -> None:
    made = subscriptions(x={"metrics": "a"}, y={"metrics": "b"})
    assert made.current.version == 2
    made.update("x", ClientMetricsConfig({"metrics": "c"}))
    made.update("y", None)
    assert made.current.version == 4
    assert made.current.wanted(CLIENT).metrics == ("c",)


def test_a_subscription_that_cannot_be_used_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.telemetry"):
        assert wanted(x={"metrics": "a", "match": "client_id=("}).metrics == ()
    assert "the client metrics subscription 'x' is ignored: Illegal client matching pattern" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "instance_id", "subscription_id"),
    [
        # Computed with Crc32C and Uuid.hashCode of Apache Kafka 4.3.1.
        (Wanted((), DEFAULT_MS), "0123456789abcdef1edcba98765432aa", 885480292),
        (Wanted(("*",), 1000), "0123456789abcdef1edcba98765432aa", -762596861),
        (Wanted((), DEFAULT_MS), "0123456789abcdeffedcba9876543210", -725132322),
    ],
)
def test_subscription_ids_are_apache_kafkas(wanted: Wanted, instance_id: str, subscription_id: int) -> None:
    assert wanted.subscription_id(bytes.fromhex(instance_id)) == subscription_id


def test_subscription_ids_are_signed() -> None:
    ids = [Wanted((), interval).subscription_id(bytes(16)) for interval in range(100, 150)]
    assert all(-(1 << 31) <= each < 1 << 31 for each in ids)
    assert len(set(ids)) == len(ids)
    assert min(ids) < 0 < max(ids)
