"""Replication throttles, `replication/replication_quota.py`: the rate, and the replicas that are held back."""

from __future__ import annotations

import pytest

from barnabas.broker.replication.replication_quota import UNLIMITED, Rate, ReplicationQuota
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.metadata_records import ConfigRecord
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state

TP = TopicPartition("t", 0)
SAMPLES, SAMPLE_MS = 11, 1000


def quota(clock: FakeClock, limit: int) -> ReplicationQuota:
    made = ReplicationQuota(clock, SAMPLES, SAMPLE_MS)
    made.set_limit(limit)
    made.throttle("t", ["0:1"], 1)
    return made


def test_the_rate_is_measured_over_the_window() -> None:
    clock = FakeClock()
    rate = Rate(clock, SAMPLES, SAMPLE_MS)
    assert rate.per_second() == 0
    rate.record(500)
    assert rate.per_second() == 500  # the first second counts as a whole one
    clock.advance_ms(2000)
    rate.record(1500)
    assert rate.per_second() == 1000
    clock.advance_ms(9000)
    assert rate.per_second() == pytest.approx(1500 / 9)  # the first sample is too old
    clock.advance_ms(60_000)
    assert rate.per_second() == 0


def test_a_rate_above_the_limit_holds_back_until_it_has_fallen() -> None:
    clock = FakeClock()
    made = quota(clock, 100)
    assert not made.holds_back(TP)
    made.record(TP, 500)
    assert made.holds_back(TP)
    clock.advance_ms(4000)
    assert made.holds_back(TP)
    clock.advance_ms(1000)
    assert not made.holds_back(TP)


def test_unnamed_replicas_are_not_throttled() -> None:
    clock = FakeClock()
    made = quota(clock, 100)
    other = TopicPartition("t", 1)
    made.record(other, 10_000)
    assert (made.byte_rate(), made.holds_back(other)) == (0, False)
    made.record(TP, 10_000)
    assert (made.is_exceeded(), made.holds_back(other), made.holds_back(TP)) == (True, False, True)


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [(["*"], {0, 1, 2}), (["0:1", "1:2", "2:1"], {0, 2}), (["0:2"], set()), (["0:1", ""], {0}), ([], set())],
)
def test_replicas_are_named_by_partition_and_broker(replicas: list[str], throttled: set[int]) -> None:
    made = quota(FakeClock(), 1)
    made.throttle("t", replicas, 1)
    assert {p for p in range(3) if made.is_throttled(TopicPartition("t", p))} == throttled


# Set by configs, on a leader


@pytest.fixture
def rig():
    made = BrokerRig()
    made.push({"t": [state(1, (1, 2, 3), (1, 2))]})
    yield made
    made.close()


def configure(rig, type_, name, **settings):
    records = [
        ConfigRecord(resource_type=type_, resource_name=name, name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    rig.dynamic_config.apply_records(records, is_full=False)


def follower_fetch(rig, replica, **about):
    request = fetch(0, item={"log_start_offset": 0}, **about)
    request.replica_state.replica_id = replica
    return rig.answer(request, 17)


def records_of(response):
    records = response.responses[0].partitions[0].records if response.responses else b""
    return 0 if not records else records.size


def test_limits_and_replicas_are_set_by_configs(rig):
    quotas = rig.manager.quotas
    configure(rig, ResourceType.TOPIC, "t", leader_replication_throttled_replicas="0:1,1:2")
    configure(rig, ResourceType.TOPIC, "t", follower_replication_throttled_replicas="*")
    configure(rig, ResourceType.BROKER, "", leader_replication_throttled_rate="700")
    configure(rig, ResourceType.BROKER, "1", follower_replication_throttled_rate="500")
    assert (quotas.leader.limit, quotas.follower.limit) == (700, 500)
    assert quotas.leader.is_throttled(TP)
    assert not quotas.leader.is_throttled(TopicPartition("t", 1))
    assert quotas.follower.is_throttled(TopicPartition("t", 1))
    configure(rig, ResourceType.TOPIC, "t", leader_replication_throttled_replicas=None)
    configure(rig, ResourceType.BROKER, "", leader_replication_throttled_rate=None)
    assert (quotas.leader.limit, quotas.leader.is_throttled(TP)) == (UNLIMITED, False)


def test_a_leader_holds_back_only_followers_outside_the_isr(rig):
    configure(rig, ResourceType.TOPIC, "t", leader_replication_throttled_replicas="*")
    configure(rig, ResourceType.BROKER, "1", leader_replication_throttled_rate="10")
    rig.answer(produce(batch(b"x" * 1000)), 9)
    assert records_of(follower_fetch(rig, 3)) > 1000, "nothing was used yet"
    assert records_of(follower_fetch(rig, 3)) == 0
    assert records_of(follower_fetch(rig, 2)) > 1000, "it is in sync: producers wait for it"
    rig.advance_ms(12_000)
    assert records_of(follower_fetch(rig, 3)) > 1000


def test_a_follower_that_is_held_back_waits(rig):
    configure(rig, ResourceType.TOPIC, "t", leader_replication_throttled_replicas="*")
    configure(rig, ResourceType.BROKER, "1", leader_replication_throttled_rate="10")
    rig.answer(produce(batch(b"x" * 1000)), 9)
    follower_fetch(rig, 3)
    waiting = follower_fetch(rig, 3, max_wait_ms=500)
    rig.answer(produce(batch(b"y")), 9)
    assert waiting.response is None
    rig.advance_ms(600)
    assert records_of(waiting.response) == 0
