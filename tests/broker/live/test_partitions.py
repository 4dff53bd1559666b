"""Partitions on the live page."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.fetch_sessions import session
from barnabas.broker.live.look import Look
from barnabas.broker.live.partitions import partitions
from barnabas.common.topic_partition import TopicPartition
from tests.support.broker.broker_rig import BrokerRig, batch, fetch, produce, state


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    made = BrokerRig(replica_lag_time_max_ms="1000")
    yield made
    made.close()


def shown(rig: BrokerRig, lags: dict[Any, int] | None = None, **query: str) -> Any:
    fetchers: Any = SimpleNamespace(fetchers=lambda: [SimpleNamespace(lags=lags or {})])
    return partitions(rig.manager, fetchers, Look.of(query, rig.clock))


def follower_fetch(rig: BrokerRig, offset: int, replica: int) -> None:
    request = fetch(offset, item={"log_start_offset": 0})
    request.replica_state.replica_id = replica
    rig.answer(request, 17)


def test_a_leader_shows_its_replicas(rig: BrokerRig) -> None:
    rig.push({"t": [state(1, (1, 2, 3))]}, brokers=(1, 2))
    rig.answer(produce(batch(b"a", b"b")), 9)
    follower_fetch(rig, 1, replica=2)
    rig.clock.advance_ms(70)
    listing = shown(rig)
    assert listing["total"] == 1
    (item,) = listing["items"]
    assert (item["topic"], item["partition"], item["role"], item["leader"]) == ("t", 0, "leader", 1)
    assert (item["log_end_offset"], item["high_watermark"], item["last_stable_offset"]) == (2, 0, 0)
    assert (item["isr"], item["replica_ids"], item["joining"], item["min_isr"]) == ([1, 2, 3], [1, 2, 3], [], 1)
    assert item["size_bytes"] > 60
    leader, behind, unheard = item["replicas"]
    assert leader == {
        "broker": 1,
        "is_leader": True,
        "is_in_sync": True,
        "is_alive": True,
        "log_end_offset": 2,
        "log_start_offset": 0,
        "lag": 0,
        "last_fetch_ms": -1,
        "last_caught_up_ms": -1,
    }
    assert (behind["broker"], behind["log_end_offset"], behind["lag"], behind["last_fetch_ms"]) == (2, 1, 1, 70)
    assert (unheard["broker"], unheard["log_end_offset"], unheard["lag"], unheard["last_fetch_ms"]) == (3, -1, -1, -1)
    assert (behind["is_alive"], unheard["is_alive"]) == (True, False)


def test_a_follower_whose_partition_is_idle_fetches_all_the_same(
    rig: BrokerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "IDLE_FROM", 0)
    rig.push({"t": [state(1, (1, 2))]})
    epoch, session_id = 0, 0
    for pause_ms in (0, 0, 400, 30):
        request = fetch(0, session_id=session_id, session_epoch=epoch, item={"log_start_offset": 0})
        request.replica_state.replica_id = 2
        session_id, epoch = rig.answer(request, 17).session_id, epoch + 1
        rig.clock.advance_ms(pause_ms)
    assert rig.manager.idle_partitions.has(TopicPartition("t", 0))
    (_, follower) = shown(rig)["items"][0]["replicas"]
    assert (follower["last_fetch_ms"], follower["last_caught_up_ms"]) == (30, 30)


def test_a_follower_shows_itself(rig: BrokerRig) -> None:
    rig.push({"t": [state(2, (1, 2), isr=(2,))]})
    (partition,) = rig.manager.partitions()
    (item,) = shown(rig, {partition.tp: 17})["items"]
    assert (item["role"], item["leader"], item["replicas"], item["fetch_lag"]) == ("follower", 2, [], 17)
    assert item["isr"] == [2], "as the controller pushed"


def test_under_replicated_ones_come_first_and_internal_ones_last(rig: BrokerRig) -> None:
    rig.push(
        {
            "__consumer_offsets": [state(1)],
            "a": [state(1, (1, 2)), state(1, (1, 2))],
            "z": [state(1, (1, 2), isr=(1,))],
        }
    )
    names = [(item["topic"], item["partition"]) for item in shown(rig)["items"]]
    assert names == [("z", 0), ("a", 0), ("a", 1), ("__consumer_offsets", 0)]
    assert [item["topic"] for item in shown(rig, limit="2")["items"]] == ["z", "a"]
    assert shown(rig, limit="2")["total"] == 4
    of_topic = shown(rig, topic="a")
    assert (of_topic["total"], [item["partition"] for item in of_topic["items"]]) == (2, [0, 1])
