"""A short fuzz run as part of the tests; `make fuzz` is a long one. The seed is always printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.fuzz.run import run
from tests.fuzz.treasure import GROUPS, TOPICS, Treasure
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

SECONDS = 20
CLIENTS_AND_NODES = 7  # two listeners a broker, one of the controller


def test_hostile_frames_lose_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("seed")
    print(f"{SECONDS} seconds of seed {seed}")
    sent = run(tmp_path / "cluster", SECONDS, seed, print)
    assert len(sent) == CLIENTS_AND_NODES
    assert min(sent.values()) > 0


@pytest.mark.parametrize("loss", ["topic", "group"])
def test_a_loss_is_noticed(tmp_path: Path, loss: str) -> None:
    with BarnabasCluster(tmp_path / "cluster", 1, 0) as cluster:
        treasure = Treasure(cluster)
        treasure.plant()
        treasure.check()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        deleted = admin.delete_topics([TOPICS[0]]) if loss == "topic" else admin.delete_consumer_groups(list(GROUPS))
        for answer in deleted.values():
            answer.result(30)
        eventually("the loss is noticed", lambda: _is_noticed(treasure))


def _is_noticed(treasure: Treasure) -> bool:
    try:
        treasure.check()
    except AssertionError:
        return True
    return False
