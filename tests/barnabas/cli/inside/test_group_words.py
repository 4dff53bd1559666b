"""The lines that `barnabas explain group` prints."""

from __future__ import annotations

from typing import Any

from barnabas.cli.inside.group_words import SHOWN, Position, by_partition, group_words
from barnabas.common.topic_partition import TopicPartition
from tests.barnabas.cli.inside.lives import group, listed, member, waiting

POSITIONS = by_partition({("orders", 0): 40}, {("orders", 0): 42, ("orders", 1): 7}, {("orders", 0): "m-1"})


def words(positions: list[Position] | None = None, shares: Any = (), **changes: Any) -> list[str]:
    return group_words(group(**changes), 1, positions or [], shares=shares)


def test_a_stable_group() -> None:
    members = listed(member("m-1"), member("m-2", instance_id="static"))
    assert words(POSITIONS, members=members) == [
        "billing is a classic group, Stable for 3 min 2 s, in generation 7, assignor range. Broker 1 coordinates it "
        "(__consumer_offsets-12).",
        "It is stable: 2 members in generation 7.",
        "2 members:",
        "  m-1 (client reader, 10.0.0.7), the leader: it has joined; it owns orders-0",
        "  m-2 (client reader, 10.0.0.7, instance static): it has joined; it owns nothing",
        "It is 2 records behind in 1 partition; in 1 more it has committed nothing:",
        "  orders-0: committed 40, its end is 42: 2 records behind, of m-1",
        "  orders-1: nothing committed, its end is 7, which no member owns",
    ]


def test_late_members_of_a_rebalance_are_named() -> None:
    members = listed(member("m-1", state="joining"), member("m-2"), member("m-3", state="syncing"))
    text = words(state="PreparingRebalance", members=members, sentence="gathers its members: waits for 1 of 2")
    assert text[1] == "It gathers its members: waits for 1 of 2."
    assert "it waits in JoinGroup for the other members" in text[3]
    assert "the group waits for it to join" in text[4]
    assert "it waits in SyncGroup for the leader's assignment" in text[5]


def test_while_a_classic_group_rebalances_no_ownership_is_shown() -> None:
    text = words(POSITIONS[1:], state="PreparingRebalance", members=listed(member("m-1"), member("m-2")))
    assert not any("owns" in line for line in text)
    assert text[-1] == "  orders-1: nothing committed, its end is 7"
    assert words(state="CompletingRebalance")[-1] == "It has committed nothing."


def test_members_of_a_consumer_group_have_epochs() -> None:
    members = listed(member("m-1", epoch=5, state="unrevoked_partitions"), member("m-2", epoch=7, state="stable"))
    text = words(type="consumer", protocol="", leader="", since_ms=-1, state="Reconciling", members=members)
    assert text[0].startswith("billing is a consumer group (KIP-848), Reconciling, in group epoch 7. Broker 1")
    assert "unrevoked_partitions, at epoch 5, 2 behind the group; it owns nothing" in text[3]
    assert "stable, at epoch 7; it owns nothing" in text[4]


def test_a_share_group_has_its_offsets_elsewhere() -> None:
    text = words(type="share", protocol="", leader="", since_ms=-1, members=listed(member("m-1", state="stable")))
    assert text[0].startswith("billing is a share group (KIP-932), Stable, in group epoch 7. Broker 1")
    assert text[2:] == [
        "1 member:",
        "  m-1 (client reader, 10.0.0.7): stable, at epoch 7",
        "The share coordinators have its offsets: barnabas group describe shows them.",
        "No broker that answers delivers records to it now.",
    ]


def test_members_of_a_streams_group_have_tasks() -> None:
    members = listed(member("m-1", state="stable", tasks="2 active, 1 standby"))
    text = words(POSITIONS, type="streams", protocol="", leader="", since_ms=-1, topology_epoch=3, members=members)
    heading = "billing is a streams group (KIP-1071), Stable, in group epoch 7, topology epoch 3. Broker 1"
    assert text[0].startswith(heading)
    assert text[2:] == [
        "1 member:",
        "  m-1 (client reader, 10.0.0.7): stable, at epoch 7; its tasks: 2 active, 1 standby",
        "It is 2 records behind in 1 partition; in 1 more it has committed nothing:",
        "  orders-0: committed 40, its end is 42: 2 records behind, of m-1",
        "  orders-1: nothing committed, its end is 7",
    ]
    assert "in group epoch 7, without a topology. Broker" in words(type="streams", protocol="", topology_epoch=-1)[0]


def share(number: int, *held: tuple[int, int, int], **changes: Any) -> Any:
    items = [
        {"member_id": "m-1", "first_offset": first, "last_offset": last, "delivery_count": times, "left_ms": 9}
        for first, last, times in held
    ]
    made = {"group_id": "billing", "topic": "orders", "partition": number, "is_loading": False, "start_offset": 5}
    return {**made, "end_offset": 9, "in_flight": 5, "held": listed(*items), "sentence": "so it is", **changes}


def test_what_is_delivered_to_a_share_group() -> None:
    shares = [share(1, (5, 6, 1), (9, 9, 3)), share(0, is_loading=True)]
    text = words(type="share", protocol="", leader="", since_ms=-1, members=listed(), shares=shares)
    assert text[3:] == [
        "2 partitions are delivered to it:",
        "  orders-0: so it is",
        "  orders-1: from offset 5 on, 5 offsets in flight; so it is",
        "    m-1 holds 5 to 6, delivered 1 time",
        "    m-1 holds 9 to 9, delivered 3 times",
    ]
    many = [share(number, *[(n, n, 1) for n in range(SHOWN + 1)]) for number in range(SHOWN + 1)]
    text = words(type="share", protocol="", leader="", since_ms=-1, members=listed(), shares=many)
    assert (text[-1], text[-2]) == ("  and 1 more", "    and 1 more")


def test_an_empty_group() -> None:
    text = words(state="Empty", leader="", sentence="has no members; it keeps offsets")
    assert text[1:] == [
        "It has no members; it keeps offsets.",
        "It has committed nothing and owns no partition.",
    ]


def test_long_lists_are_cut() -> None:
    positions = [Position(TopicPartition("orders", n), n, 100, None) for n in range(SHOWN + 5)]
    members = {"total": SHOWN + 2, "items": [member(f"m-{n}") for n in range(SHOWN + 2)]}
    text = words(positions, members=members)
    assert "  and 2 more" in text
    assert text[-1] == "  and 5 more"
    assert text[-SHOWN - 1].startswith("  orders-0: committed 0,"), "the partition with the largest lag comes first"


def test_positions_that_are_not_known() -> None:
    text = group_words(group(members=listed(member("m-1"))), 1, [], [], "no cluster answers at h:1")
    assert text[3:] == [
        "  m-1 (client reader, 10.0.0.7), the leader: it has joined",
        "Its lag is unknown: no cluster answers at h:1.",
    ]


def test_waiting_operations() -> None:
    text = group_words(group(), 1, [], [waiting("join of client reader waits for 1 of 2 members")])
    assert text[-2:] == ["Waiting operations (1):", "  join of client reader waits for 1 of 2 members (for 4.1 s)"]
