"""The lines that `barnabas explain partition` prints."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.inside.partition_words import partition_words
from barnabas.common.topic_partition import TopicPartition
from tests.barnabas.cli.inside.lives import broker, listed, partition, purgatory, replica, waiting

TP = TopicPartition("orders", 3)


def words(silent: dict[int, str] | None = None, **changes: Any) -> list[str]:
    return partition_words(TP, {1: broker(1, partitions=listed(partition(**changes)))}, silent)


def test_a_healthy_partition() -> None:
    assert words() == [
        "orders-3 is led by broker 1 in leader epoch 4 (partition epoch 7). Its replicas are on brokers 1, 2 and 0; "
        "in sync (ISR): 0, 1 and 2.",
        "Its log has the offsets 0 to 1041; the next record gets 1042 (123,456 bytes in 1 segment).",
        "The high watermark is 1042, the end of the log: every in-sync replica has all records.",
        "acks=all needs 2 in-sync replicas (min.insync.replicas); there are 3: 1 more may leave before acks=all is "
        "refused.",
        "Nothing waits for it.",
    ]


def test_a_follower_that_lags_holds_the_watermark_back() -> None:
    replicas = [
        replica(1, 1042, is_leader=True),
        replica(2, 1017, 1042, last_fetch_ms=4100, last_caught_up_ms=4100),
        replica(0, 1042),
    ]
    text = words(high_watermark=1017, replicas=replicas)
    assert text[2:4] == [
        "The high watermark is 1017: 25 records above it are not on every in-sync replica yet. Consumers do not see "
        "them, and acks=all waits.",
        "  replica 2 is at 1017, 25 records behind; it last fetched 4.1 s ago; it leaves the ISR in 25.9 s if it does "
        "not catch up",
    ]


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"last_caught_up_ms": 31_000}, "it leaves the ISR at the next check (1.0 s over replica.lag.time.max.ms)"),
        ({"is_alive": False}, "if it does not catch up (broker 2 is not alive)"),
        ({"log_end_offset": -1, "last_caught_up_ms": -1}, "replica 2 has not fetched since broker 1 became leader"),
    ],
)
def test_the_reason_why_a_replica_lags_is_named(changes: dict[str, Any], end: str) -> None:
    slow = replica(2, 1017, 1042, last_fetch_ms=4100) | changes
    text = words(high_watermark=1017, replicas=[replica(1, 1042, is_leader=True), slow])
    assert text[3].endswith(end)


def test_a_silent_follower_is_named() -> None:
    slow = replica(2, 1017, 1042, last_fetch_ms=4100)
    text = words({2: "its page does not answer"}, high_watermark=1017, replicas=[slow])
    assert text[3].endswith(" (broker 2: its page does not answer)")


def test_a_joining_replica_holds_the_watermark_back() -> None:
    joining = replica(2, 1041, 1042, is_in_sync=False)
    text = words(high_watermark=1041, isr=[1], joining=[2], is_isr_change_in_flight=True, replicas=[joining], min_isr=1)
    assert text[2].startswith("The high watermark is 1041: 1 record above it is not on every in-sync replica yet.")
    assert text[3:5] == [
        "  replica 2 is at 1041, 1 record behind; it last fetched 100 ms ago; it is about to join the ISR",
        "  a change of the ISR was proposed; the controller has not confirmed it yet",
    ]


def test_a_watermark_that_is_about_to_advance() -> None:
    last = "  every replica that it waits for has caught up: the watermark is about to advance"
    assert words(high_watermark=1041)[3] == last


def test_below_min_isr_the_watermark_does_not_advance() -> None:
    others = [replica(2, 1042, is_in_sync=False, is_alive=False), replica(0, 1042, is_in_sync=False, is_alive=False)]
    text = words(high_watermark=1040, isr=[1], replicas=[replica(1, 1042, is_leader=True), *others])
    assert text[2] == (
        "The high watermark is 1040: 2 records above it wait for the ISR to grow. It has 1 member, min.insync.replicas "
        "requires 2: until then the watermark does not advance, and consumers do not see them."
    )
    assert not any("about to advance" in line or "next fetch" in line for line in text)
    assert "acks=all is refused (NOT_ENOUGH_REPLICAS) until the ISR has grown." in text[-2]


def test_a_caught_up_replica_holds_the_watermark_before_it_is_proposed() -> None:
    caught_up = replica(2, 1041, 1042, is_in_sync=False)
    text = words(high_watermark=1041, isr=[0, 1], replicas=[replica(1, 1042, is_leader=True), caught_up])
    assert text[3].startswith("  replica 2 is at 1041, 1 record behind; it last fetched 100 ms ago; ")
    assert text[3].endswith("it is not in sync, but the watermark waits for it")


def test_replicas_that_are_not_in_sync() -> None:
    others = [
        replica(2, 900, 1042, is_in_sync=False, last_fetch_ms=120_000, is_alive=False),
        replica(0, -1, is_in_sync=False, last_fetch_ms=-1),
    ]
    text = words(isr=[1], replicas=others)
    assert text[3:6] == [
        "Replica 2 is not in sync: it is at 900, 142 records behind, and last fetched 2 min 0 s ago (broker 2 is not "
        "alive).",
        "Replica 0 is not in sync: it has not fetched since broker 1 became leader.",
        "acks=all needs 2 in-sync replicas (min.insync.replicas); there is 1: acks=all is refused "
        "(NOT_ENOUGH_REPLICAS) until the ISR has grown.",
    ]


def test_just_enough_replicas() -> None:
    assert words(isr=[1, 2])[-2] == (
        "acks=all needs 2 in-sync replicas (min.insync.replicas); there are 2: if one more leaves, acks=all is "
        "refused (NOT_ENOUGH_REPLICAS)."
    )


def test_a_single_replica() -> None:
    text = words(isr=[1], min_isr=1, replica_ids=[1], replicas=[replica(1, 1042, 1042, is_leader=True)])
    assert text[-2] == (
        "acks=all needs 1 in-sync replica (min.insync.replicas); there is 1, the leader: without it the partition is "
        "offline."
    )


def test_an_empty_log() -> None:
    text = words(log_start_offset=50, log_end_offset=50, size_bytes=0, segments=1)
    assert text[1] == "Its log is empty; the next record gets offset 50 (0 bytes in 1 segment)."


def test_an_open_transaction() -> None:
    view = partition(last_stable_offset=1000)
    transaction = {
        "transactional_id": "copier",
        "state": "Ongoing",
        "producer_id": 9,
        "producer_epoch": 0,
        "age_ms": 12_000,
        "timeout_ms": 60_000,
        "partitions": ["orders-3"],
    }
    other = {**transaction, "transactional_id": "other", "partitions": ["orders-4"]}
    lives = {1: broker(1, partitions=listed(view)), 2: broker(2, transactions=listed(transaction, other))}
    text = partition_words(TP, lives)  # another broker than the leader may coordinate it
    assert text[4:6] == [
        "read_committed consumers see offsets below 1000: a transaction is open there.",
        "  transaction copier (producer id 9) is Ongoing for 12.0 s; its timeout is 1 min 0 s",
    ]
    assert not any("other" in line for line in text)
    assert "no transaction coordinator knows the transaction" in partition_words(TP, {1: lives[1]})[5]
    assert len(partition_words(TP, {1: lives[1]}, {2: "no answer"})) == len(text) - 1  # broker 2 may know


def test_waiting_operations_are_listed_oldest_first_up_to_a_limit() -> None:
    items = [waiting(f"produce of client c{age}", keys=["orders-3"], age_ms=float(age)) for age in range(1, 8)]
    unrelated = waiting("produce of client x", keys=["orders-4"])
    live = broker(1, partitions=listed(partition()), purgatories=[purgatory("Produce", unrelated, *items)])
    text = partition_words(TP, {1: live})
    assert text[-7:-5] == ["Waiting operations (7):", "  produce of client c7 (for 7 ms)"]
    assert text[-1] == "  and 2 more"


def follower(**changes: Any) -> dict[str, Any]:
    return partition(role="follower", replicas=[], log_end_offset=1017, **changes)


def test_a_leader_that_does_not_answer() -> None:
    lives = {0: broker(0, partitions=listed(follower())), 2: broker(2, partitions=listed(follower(high_watermark=9)))}
    text = partition_words(TP, lives, {1: "its page at h:1 does not answer"})
    assert text[0].startswith(
        "orders-3 is led by broker 1, which does not answer: its page at h:1 does not answer. Its replicas are on"
    )
    assert text[1:] == [
        "  broker 0, a follower in leader epoch 4, has offsets 0 to 1016; its high watermark is 1017",
        "  broker 2, a follower in leader epoch 4, has offsets 0 to 1016; its high watermark is 9",
    ]


@pytest.mark.parametrize(
    ("leader", "start"),
    [
        (-1, "orders-3 has no leader: clients can neither write nor read it."),
        (0, "orders-3 is moving its leadership to broker 0."),
        (2, "orders-3 is led by broker 2, whose page is not known."),
    ],
)
def test_a_partition_without_a_known_leader(leader: int, start: str) -> None:
    text = partition_words(TP, {0: broker(0, partitions=listed(follower(leader=leader)))})
    assert text[0].startswith(start)


def test_a_partition_without_leader_waits_for_its_isr() -> None:
    assert partition_words(TP, {0: broker(0, partitions=listed(follower(leader=-1, isr=[2])))})[0].endswith(
        "in sync (ISR): 2. It gets one when a broker of the ISR returns (2)."
    )
    assert partition_words(TP, {0: broker(0, partitions=listed(follower(leader=-1, isr=[])))})[0].endswith(
        "in sync (ISR): none. No replica is in sync."
    )


def test_a_replaced_leader_does_not_count_as_leader() -> None:
    lives = {
        1: broker(1, partitions=listed(partition())),
        0: broker(0, partitions=listed(follower(leader=2, leader_epoch=5))),
    }
    text = partition_words(TP, lives, {2: "no answer in time"})
    assert text[0].startswith("orders-3 is led by broker 2, which does not answer: no answer in time.")
    assert "broker 1, a former leader that does not know it yet, in leader epoch 4" in text[2]


def test_of_two_leaders_the_newer_one_counts() -> None:
    former = partition(leader=0, leader_epoch=3)
    text = partition_words(TP, {0: broker(0, partitions=listed(former)), 1: broker(1, partitions=listed(partition()))})
    assert text[0].startswith("orders-3 is led by broker 1 in leader epoch 4")


def test_no_broker_has_the_partition() -> None:
    with pytest.raises(KeyError):
        partition_words(TP, {0: broker(0, partitions=listed(partition(number=4)))})
