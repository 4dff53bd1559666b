"""Groups and transactions on the live page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.values import Member
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.values import GroupTopology, MemberMetadata, Subtopology, Topology
from barnabas.broker.coordinators.streams_groups.values import Member as StreamsMember
from barnabas.broker.coordinators.transactions.transaction import TxnData, TxnState
from barnabas.broker.live.groups import groups, transactions
from barnabas.broker.live.look import Look
from barnabas.common.topic_partition import TopicPartition
from tests.broker.coordinators.group_rig import GroupShardRig

WALL_MS = 5000
LOOK = Look(now_ns=0, now_ms=0, wall_ms=WALL_MS)


@pytest.fixture
def coordinator() -> Any:
    """A coordinator with the stable group `g` in partition 7 and the empty group `a` in partition 3."""

    def shard(partition: int, rig: GroupShardRig, group_id: str) -> Any:
        rig.group.group_id = group_id
        tp = TopicPartition("__consumer_offsets", partition)
        return SimpleNamespace(
            tp=tp, groups={group_id: rig.group}, consumer_groups={}, share_groups={}, streams_groups={}
        )

    shards = [shard(7, GroupShardRig().make_stable("m1", "m2"), "g"), shard(3, GroupShardRig(), "a")]
    return SimpleNamespace(shards=lambda: shards, initial_delay_ms=3000)


def test_a_classic_group_shows_its_members(coordinator: Any) -> None:
    shown = groups(coordinator, LOOK._replace(group="g"))
    assert shown["total"] == 1
    group = shown["items"][0]
    assert (group["group_id"], group["type"], group["state"]) == ("g", "classic", "Stable")
    assert group["coordinator_partition"] == 7
    assert [member["state"] for member in group["members"]["items"]] == ["member", "member"]
    assert {member["epoch"] for member in group["members"]["items"]} == {group["generation"]}


def test_groups_are_sorted_and_limited(coordinator: Any) -> None:
    assert [group["group_id"] for group in groups(coordinator, LOOK)["items"]] == ["a", "g"]
    first = groups(coordinator, LOOK._replace(limit=1))
    assert (first["total"], [group["group_id"] for group in first["items"]]) == (2, ["a"])


def test_open_transactions_are_shown_the_oldest_first() -> None:
    found = [
        ("young", TxnData(1, 0, 900, TxnState.ONGOING, frozenset({TopicPartition("t", 1)}), WALL_MS - 10)),
        ("done", TxnData(2, 0, 900, TxnState.COMPLETE_COMMIT, frozenset(), WALL_MS - 100)),
        ("old", TxnData(3, 4, 900, TxnState.PREPARE_ABORT, frozenset(), WALL_MS - 50)),
    ]
    coordinator: Any = SimpleNamespace(look=lambda: found)
    shown = transactions(coordinator, LOOK)
    assert shown["total"] == 2
    assert [(item["transactional_id"], item["age_ms"]) for item in shown["items"]] == [("old", 50), ("young", 10)]
    assert shown["items"][1]["partitions"] == ["t-1"]


def test_a_share_group_shows_its_members(coordinator: Any) -> None:
    group = ShareGroup("s")
    group.assignment_epoch = 3
    for member_id, epoch in (("m1", 3), ("m2", 2)):
        group.members[member_id] = Member(member_id, client_id="c", client_host="/h", epoch=epoch)
    coordinator.shards()[0].share_groups["s"] = group
    (shown,) = groups(coordinator, LOOK._replace(group="s"))["items"]
    assert (shown["type"], shown["state"], shown["coordinator_partition"]) == ("share", "Stable", 7)
    assert [(m["member_id"], m["host"], m["state"]) for m in shown["members"]["items"]] == [
        ("m1", "h", "stable"), ("m2", "h", "reconciling"),
    ]  # fmt: skip


def test_a_streams_group_shows_its_members(coordinator: Any) -> None:
    group = StreamsGroup("t")
    topology = Topology(1, {"0": Subtopology("0", ("a",))})
    group.replay(GroupTopology(topology))
    group.replay(MemberMetadata("m1", StreamsMember("m1", client_id="c", client_host="/h")))
    coordinator.shards()[0].streams_groups["t"] = group
    (shown,) = groups(coordinator, LOOK._replace(group="t"))["items"]
    assert (shown["type"], shown["state"], shown["coordinator_partition"]) == ("streams", "NotReady", 7)
    assert [(m["member_id"], m["host"], m["state"]) for m in shown["members"]["items"]] == [("m1", "h", "stable")]
    assert (shown["topology_epoch"], shown["members"]["items"][0]["tasks"]) == (1, "none")
    group.replay(GroupTopology(None))
    group.replay(MemberMetadata("m2", StreamsMember("m2")))
    (shown,) = groups(coordinator, LOOK._replace(group="t", limit=1))["items"]
    assert (shown["topology_epoch"], shown["members"]["total"], len(shown["members"]["items"])) == (-1, 2, 1)
