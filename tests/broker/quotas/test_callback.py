"""Quotas by a class of the operator's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.broker.metadata.metadata_cache import BrokerInfo, MetadataSnapshot, PartitionInfo, TopicInfo
from barnabas.broker.quotas.callback import LOG_MS, Cluster, QuotaPlugin
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.limits import CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE
from barnabas.broker.quotas.mutations import MutationQuotas
from barnabas.broker.quotas.rates import Window
from barnabas.common.clock import FakeClock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.values import QuotaEntity

HERE = "tests.broker.quotas.test_callback"
WINDOW = Window(11, 1000)


class ByTeam:
    """Users share the limit of their team, the part of the name before the dash."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings
        self.limits: dict[tuple[str, str], float] = {}
        self.asked: list[tuple[str, str]] = []
        self.cluster: Cluster | None = None
        self.must_reset = False
        self.is_closed = False
        self.fails = False

    def quota_metric_tags(self, quota: str, principal: str, client_id: str) -> Mapping[str, str]:
        assert client_id == "app"
        if self.fails:
            raise RuntimeError("our bug")
        return {"user": principal.removeprefix("User:").partition("-")[0]} if quota == PRODUCER_BYTE_RATE else {}

    def quota_limit(self, quota: str, tags: Mapping[str, str]) -> float | None:
        self.asked.append((quota, tags["user"]))
        return self.limits.get((quota, tags["user"]))

    def update_quota(self, quota: str, entity: Mapping[str, str | None], limit: float) -> None:
        self.limits[quota, str(entity["user"])] = limit

    def remove_quota(self, quota: str, entity: Mapping[str, str | None]) -> None:
        del self.limits[quota, str(entity["user"])]

    def quota_reset_required(self, quota: str) -> bool:
        if quota != PRODUCER_BYTE_RATE:
            return False
        was, self.must_reset = self.must_reset, False
        return was

    def update_cluster_metadata(self, cluster: Cluster) -> bool:
        self.cluster = cluster
        self.limits[PRODUCER_BYTE_RATE, "a"] = 5.0
        return True

    def close(self) -> None:
        self.is_closed = True


class CallbackRig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.callback = ByTeam({})
        self.quotas = ClientQuotas(WINDOW, self.clock, QuotaPlugin(self.callback, self.clock))

    def wait_ms(self, user: str, size: int) -> int:
        """Return how long a user waits who produces so many bytes."""
        manager = self.quotas.produce
        assert manager is not None
        return manager.count(user, "app", size, self.clock.monotonic_ms()).ms

    def set(self, **limits: float) -> None:
        self.quotas.update(
            {QuotaEntity.of({"user": user}): {PRODUCER_BYTE_RATE: limit} for user, limit in limits.items()}
        )


def test_clients_with_equal_tags_share_a_rate() -> None:
    rig = CallbackRig()
    assert rig.quotas.is_active
    rig.set(a=100.0)
    assert rig.wait_ms("a-1", 600) == 0
    assert rig.wait_ms("b-1", 10**9) == 0, "nothing is configured for this team"
    assert rig.wait_ms("a-2", 600) > 0
    rig.set()
    assert rig.callback.limits == {}
    assert rig.wait_ms("a-2", 10**9) == 0


def test_a_limit_is_asked_for_once_until_something_changes() -> None:
    rig = CallbackRig()
    rig.set(a=100.0)
    for _ in range(3):
        rig.wait_ms("a-1", 1)
    assert rig.callback.asked == [(PRODUCER_BYTE_RATE, "a")]
    rig.callback.limits[PRODUCER_BYTE_RATE, "a"] = 1.0
    rig.callback.must_reset = True
    assert rig.wait_ms("a-1", 1000) > 0
    assert len(rig.callback.asked) == 2


def test_a_changed_cluster_is_shown() -> None:
    rig = CallbackRig()
    assert rig.wait_ms("a-1", 1000) == 0
    partition = PartitionInfo(0, 7, 1, 1, (7,), (7,), ())
    brokers = {7: BrokerInfo(7, None, {})}
    topics = {"t": TopicInfo("t", bytes(16), {0: partition})}
    rig.quotas.cluster_changed(MetadataSnapshot(brokers=brokers, topics=topics))
    assert rig.callback.cluster == Cluster(frozenset({7}), {"t": {0: 7}})
    assert rig.wait_ms("a-1", 1000) > 0
    ClientQuotas(WINDOW, rig.clock).cluster_changed(MetadataSnapshot())


def test_a_callback_that_fails_limits_nobody(caplog: pytest.LogCaptureFixture) -> None:
    rig = CallbackRig()
    rig.set(a=1.0)
    rig.callback.fails = True
    for _ in range(5):
        assert rig.wait_ms("a-1", 10**6) == 0
    assert [record.getMessage() for record in caplog.records] == ["client.quota.callback.class failed"]
    rig.clock.advance_ms(LOG_MS)
    rig.wait_ms("a-1", 1)
    assert len(caplog.records) == 2
    rig.callback.fails = False
    assert rig.wait_ms("a-1", 10**6) > 0


def test_changes_of_topics_are_limited_too() -> None:
    clock = FakeClock()
    callback = ByTeam({})
    quotas = MutationQuotas(WINDOW, clock, QuotaPlugin(callback, clock))
    assert quotas.manager is None
    quotas.update({QuotaEntity.of({"user": "a"}): {CONTROLLER_MUTATION_RATE: 3.0}})
    assert callback.limits == {(CONTROLLER_MUTATION_RATE, "a"): 3.0}
    manager: Any = quotas.manager
    assert manager is not None
    quotas.update({})
    assert quotas.manager is manager
    assert callback.limits == {}


class Unfinished:
    def __init__(self, _settings: Mapping[str, str]) -> None:
        """Make it."""

    def quota_limit(self) -> None:
        """Limit nothing."""


class Failing:
    def __init__(self, _settings: Mapping[str, str]) -> None:
        raise RuntimeError("s3cret")


def plugin(entry_point: str) -> QuotaPlugin | None:
    properties = {"node.id": "1", "client.quota.callback.class": entry_point}
    return QuotaPlugin.of(Config.from_properties(properties), FakeClock())


def test_a_class_is_made_with_the_settings_and_closed() -> None:
    made = plugin(f"{HERE}:ByTeam")
    assert made is not None
    callback: Any = made.callback
    assert callback.settings["node.id"] == "1"
    ClientQuotas(WINDOW, FakeClock(), made).close()
    assert callback.is_closed
    assert QuotaPlugin.of(Config.from_properties({"node.id": "1"}), FakeClock()) is None


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [
        ("org.example.Quotas", "Java classes cannot be loaded here"),
        (f"{HERE}:Nothing", "cannot be imported"),
        (f"{HERE}:Unfinished", "has no quota_metric_tags, update_quota, remove_quota, quota_reset_required, update_"),
        (f"{HERE}:Failing", "cannot be made: RuntimeError"),
    ],
)
def test_what_is_no_callback_ends_the_start(entry_point: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        plugin(entry_point)
    assert "s3cret" not in str(caught.value)
