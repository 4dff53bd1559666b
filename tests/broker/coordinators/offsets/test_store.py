"""The store of committed offsets: fetching, transactions, expiry."""

from __future__ import annotations

import random

import pytest

from barnabas.broker.coordinators.classic.events import GroupState
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.members import Member
from barnabas.broker.coordinators.offsets.store import CommittedOffset, FetchedPartition, OffsetStore, TopicQuery
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.group_rig import RANGE

NO_ID = bytes(16)


def committed(offset: int, **more: object) -> CommittedOffset:
    return CommittedOffset(offset, 7, "m", 1000)._replace(**more)


def fetch(store: OffsetStore, *, topic_id: bytes = NO_ID, stable: bool = False) -> FetchedPartition:
    (topic,) = store.fetch("g", [TopicQuery(topic_id, "t", [0])], require_stable=stable)
    return topic.partitions[0]


def test_put_get_remove_count() -> None:
    store = OffsetStore()
    store.put("g", "t", 0, committed(1))
    store.put("g", "t", 0, committed(2))
    store.put("g", "t", 1, committed(3))
    assert store.count == 2
    assert fetch(store) == FetchedPartition(0, 2, 7, "m")
    store.remove("g", "t", 0)
    store.remove("g", "t", 0)
    assert store.count == 1
    assert fetch(store) == FetchedPartition(0)
    assert store.all_partitions("g") == [TopicPartition("t", 1)]


def test_fetch_of_all() -> None:
    store = OffsetStore()
    store.put("g", "t", 1, committed(1))
    store.put("g", "u", 0, committed(2))
    topics = store.fetch("g", None, require_stable=False)
    assert [(t.name, [p.offset for p in t.partitions]) for t in topics] == [("t", [1]), ("u", [2])]
    assert store.fetch("other", None, require_stable=False) == []


@pytest.mark.parametrize(
    ("stored", "asked", "is_found"),
    [(NO_ID, b"x" * 16, True), (b"x" * 16, NO_ID, True), (b"x" * 16, b"x" * 16, True), (b"x" * 16, b"y" * 16, False)],
)
def test_a_topic_recreated_under_another_id_has_no_position(stored: bytes, asked: bytes, is_found: bool) -> None:
    store = OffsetStore()
    store.put("g", "t", 0, committed(5, topic_id=stored))
    assert (fetch(store, topic_id=asked).offset == 5) is is_found


class TestTransactions:
    def test_are_unstable_until_they_end(self) -> None:
        store = OffsetStore()
        store.put("g", "t", 0, committed(1))
        store.put_pending(9, "g", "t", 0, committed(2, record_offset=10))
        assert fetch(store).offset == 1
        assert fetch(store, stable=True) == FetchedPartition(0, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        store.end_transaction(9, True)
        assert fetch(store, stable=True).offset == 2
        assert store.count == 1

    def test_aborted_ones_leave_nothing(self) -> None:
        store = OffsetStore()
        store.put_pending(9, "g", "t", 0, committed(2, record_offset=10))
        assert store.has_open_transactions("g")
        store.end_transaction(9, False)
        assert store.count == 0
        assert not store.has_open_transactions("g")

    def test_a_later_plain_commit_wins(self) -> None:
        store = OffsetStore()
        store.put_pending(9, "g", "t", 0, committed(2, record_offset=10))
        store.put("g", "t", 0, committed(3, record_offset=11))
        store.end_transaction(9, True)
        assert fetch(store).offset == 3

    def test_a_removal_takes_pending_ones_too(self) -> None:
        store = OffsetStore()
        store.put_pending(9, "g", "t", 0, committed(2, record_offset=10))
        assert list(store.of_topics({"t"})) == [("g", TopicPartition("t", 0))]
        store.remove("g", "t", 0)
        store.end_transaction(9, True)
        assert fetch(store).offset == -1


class TestExpiry:
    def group(self, state: GroupState, protocol_type: str | None = "consumer") -> Group:
        members = [Member("m", None, "c", "/h", 1, 1, protocol_type or "", RANGE)]
        timestamp_ms = 50_000
        group = Group.from_log(
            "g", 1, protocol_type, "range", "m", timestamp_ms, members if state is not GroupState.EMPTY else []
        )
        group.state = state
        return group

    def due(self, group: Group, now_ms: int, *, retention_ms: int = 1000, **more: object) -> tuple[list[str], bool]:
        store = OffsetStore()
        store.put("g", "t", 0, committed(1, **more))  # members read t
        store.put("g", "old", 0, committed(1, **more))
        gone, is_all = store.expired(group, now_ms, retention_ms)
        return [tp.topic for tp in gone], is_all

    def test_simple_groups_by_commit_time(self) -> None:
        group = self.group(GroupState.EMPTY, None)
        assert self.due(group, 1999) == ([], False)
        assert self.due(group, 2000) == (["t", "old"], True)

    def test_empty_groups_by_the_time_they_became_empty(self) -> None:
        group = self.group(GroupState.EMPTY)
        assert self.due(group, 50_999) == ([], False)
        assert self.due(group, 51_000) == (["t", "old"], True)

    def test_stable_consumers_keep_what_they_read(self) -> None:
        assert self.due(self.group(GroupState.STABLE), 2000) == (["old"], False)

    @pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
    def test_nothing_goes_while_members_are_unsettled(self, state: GroupState) -> None:
        assert self.due(self.group(state), 10**9) == ([], False)

    def test_other_members_keep_everything(self) -> None:
        assert self.due(self.group(GroupState.STABLE, "connect"), 10**9) == ([], False)

    def test_an_expiry_of_its_own_counts(self) -> None:
        group = self.group(GroupState.EMPTY, None)
        assert self.due(group, 10**9, expire_timestamp_ms=10**9 + 1) == ([], False)
        assert self.due(group, 1500, expire_timestamp_ms=1500) == (["t", "old"], True)

    def test_open_transactions_keep_the_group(self) -> None:
        store = OffsetStore()
        store.put_pending(9, "g", "t", 0, committed(1))
        assert store.expired(self.group(GroupState.EMPTY), 10**9, 1) == ([], False)
        assert OffsetStore().expired(self.group(GroupState.EMPTY), 10**9, 1) == ([], True)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_open_is_what_transactions_hold(seed: int) -> None:
    """After any steps, the answers are those of a look at each open transaction."""
    chance = random.Random(seed)
    store = OffsetStore()
    held: dict[int, set[tuple[str, TopicPartition]]] = {}
    for _ in range(400):
        producer_id, group = chance.randrange(6), chance.choice("gh")
        partition = TopicPartition("t", chance.randrange(4))
        step = chance.random()
        if step < 0.5:
            store.put_pending(producer_id, group, *partition, committed(1))
            held.setdefault(producer_id, set()).add((group, partition))
        elif step < 0.8:
            store.end_transaction(producer_id, chance.random() < 0.5)
            held.pop(producer_id, None)
        else:
            store.remove(group, *partition)
            for partitions in held.values():
                partitions.discard((group, partition))
        every = set().union(*held.values())
        for name in "gh":
            found = {tp for of, tp in every if of == name}
            assert store.has_open_transactions(name) == bool(found)
            assert {p for p in range(4) if store.has_pending(name, "t", p)} == {tp.partition for tp in found}
            assert set(store.all_partitions(name)) == found | {tp for tp, _ in store.of_group(name)}
