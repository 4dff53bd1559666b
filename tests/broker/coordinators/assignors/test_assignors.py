"""The assignors: examples, and the properties of every assignment on random groups that change step by step.

Tests `coordinators/assignors/homogeneous.py`, `coordinators/assignors/heterogeneous.py` and
`coordinators/assignors/specs.py`, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from barnabas.broker.coordinators.assignors.assignors import ASSIGNORS, assign_range, assign_uniform
from barnabas.broker.coordinators.assignors.specs import MemberSpec, Specs, is_homogeneous
from barnabas.broker.coordinators.consumer.values import Assignment, partitions_of

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16
SEEDS = range(150)


def spec(*topics: bytes, instance_id: str | None = None, **held: tuple[int, ...]) -> MemberSpec:
    """A member subscribed to these topics; `a=(0, 1)` says what it had of topic A."""
    ids = {"a": A, "b": B, "c": C}
    before = {ids[name]: frozenset(partitions) for name, partitions in held.items()}
    return MemberSpec(frozenset(topics), before, instance_id)


def shown(target: Mapping[str, Assignment]) -> dict[str, str]:
    """Assignments as a person would write them: "a0 a1 b0"."""
    return {
        member_id: " ".join(f"{topic_id[:1].decode()}{p}" for topic_id, p in sorted(partitions_of(assignment)))
        for member_id, assignment in target.items()
    }


class TestRange:
    def test_topics_of_one_size_are_cut_alike(self) -> None:
        members = {"y": spec(A, B), "x": spec(A, B)}
        assert shown(assign_range(members, {A: 3, B: 3})) == {"x": "a0 a1 b0 b1", "y": "a2 b2"}

    def test_static_members_come_first_by_instance(self) -> None:
        members = {"a": spec(A), "z2": spec(A, instance_id="1"), "z1": spec(A, instance_id="2")}
        assert shown(assign_range(members, {A: 3})) == {"z2": "a0", "z1": "a1", "a": "a2"}

    def test_topics_are_cut_for_their_subscribers(self) -> None:
        members = {"x": spec(A, B), "y": spec(A), "z": spec(B)}
        assert shown(assign_range(members, {A: 2, B: 3})) == {"x": "a0 b0 b1", "y": "a1", "z": "b2"}

    def test_who_comes_late_may_get_nothing(self) -> None:
        assert shown(assign_range({"x": spec(A), "y": spec(A)}, {A: 1})) == {"x": "a0", "y": ""}


class TestUniform:
    def test_everybody_gets_as_many(self) -> None:
        members = {"x": spec(A, B), "y": spec(A, B)}
        assert shown(assign_uniform(members, {A: 2, B: 1})) == {"x": "a0 a1", "y": "b0"}

    def test_a_newcomer_gets_its_share_and_no_more_moves(self) -> None:
        members = {"x": spec(A, a=(0, 2)), "y": spec(A, a=(1, 3)), "z": spec(A)}
        assert shown(assign_uniform(members, {A: 4})) == {"x": "a0 a2", "y": "a1", "z": "a3"}

    def test_what_one_leaves_goes_to_who_has_least(self) -> None:
        members = {"x": spec(A, a=(0, 1)), "y": spec(A, a=(2,))}
        assert shown(assign_uniform(members, {A: 4})) == {"x": "a0 a1", "y": "a2 a3"}

    def test_new_partitions_move_nothing_else(self) -> None:
        members = {"x": spec(A, a=(0,)), "y": spec(A, a=(1,))}
        assert shown(assign_uniform(members, {A: 5})) == {"x": "a0 a2 a3", "y": "a1 a4"}

    def test_who_has_one_more_keeps_it(self) -> None:
        members = {"x": spec(A, a=(0,)), "y": spec(A, a=(1, 2)), "z": spec(A, a=(3,))}
        assert shown(assign_uniform(members, {A: 4})) == {"x": "a0", "y": "a1 a2", "z": "a3"}

    def test_topics_that_are_gone_are_dropped(self) -> None:
        members = {"x": spec(A, a=(0,), b=(0, 1)), "y": spec(A)}
        assert shown(assign_uniform(members, {A: 2})) == {"x": "a0", "y": "a1"}

    def test_mixed_subscriptions_are_evened_out_as_far_as_they_allow(self) -> None:
        members = {"x": spec(A), "y": spec(A, B), "z": spec(B, C)}
        assert shown(assign_uniform(members, {A: 3, B: 2, C: 2})) == {"x": "a0 a2", "y": "a1 b0 b1", "z": "c0 c1"}

    def test_mixed_subscriptions_move_what_they_must(self) -> None:
        members = {"x": spec(A, a=(0, 1, 2, 3)), "y": spec(A, B, b=(0,))}
        assert shown(assign_uniform(members, {A: 4, B: 1})) == {"x": "a0 a1 a2", "y": "a3 b0"}

    def test_one_move_opens_the_way_for_another(self) -> None:
        members = {"x": spec(A, a=(0, 1, 2, 3, 4, 5)), "y": spec(A, B, b=(0,)), "z": spec(B)}
        assert shown(assign_uniform(members, {A: 6, B: 1})) == {"x": "a0 a1 a2", "y": "a3 a4 a5", "z": "b0"}

    def test_nobody_gets_nothing(self) -> None:
        assert assign_uniform({}, {}) == {}
        assert assign_uniform({"x": spec()}, {}) == {"x": {}}


class Group:
    """A random group: members come and go, change subscriptions; topics grow."""

    def __init__(self, seed: int, *, is_homogeneous: bool) -> None:
        self.random = random.Random(seed)
        self.is_homogeneous = is_homogeneous
        self.counts = {
            bytes([65 + index]) * 16: self.random.randrange(1, 12) for index in range(self.random.randrange(1, 6))
        }
        self.members: dict[str, MemberSpec] = {}
        self.number = 0
        for _ in range(self.random.randrange(1, 8)):
            self.come()

    def subscription(self) -> frozenset[bytes]:
        topics = sorted(self.counts)
        return frozenset(
            topics if self.is_homogeneous else self.random.sample(topics, self.random.randint(1, len(topics)))
        )

    def come(self) -> None:
        self.number += 1
        instance_id = self.random.choice([None, f"i{self.number}"])
        self.members[f"m{self.random.random()}"] = MemberSpec(self.subscription(), {}, instance_id)

    def change(self) -> None:
        what = self.random.randrange(4)
        if what == 0 or not self.members:
            self.come()
        elif what == 1 and len(self.members) > 1:
            del self.members[self.random.choice(list(self.members))]
        elif what == 2:
            topic = self.random.choice(list(self.counts))
            self.counts[topic] += self.random.randrange(4)
        elif not self.is_homogeneous:
            member_id = self.random.choice(list(self.members))
            self.members[member_id] = self.members[member_id]._replace(topic_ids=self.subscription())

    def assign(self, assignor: str) -> dict[str, Assignment]:
        target = ASSIGNORS[assignor](self.members, self.counts)
        check(self.members, self.counts, target)
        return target

    def take(self, target: Mapping[str, Assignment]) -> None:
        self.members = {id_: spec._replace(assignment=target[id_]) for id_, spec in self.members.items()}


def check(members: Specs, counts: Mapping[bytes, int], target: Mapping[str, Assignment]) -> None:
    """Every partition that somebody is subscribed to has one owner, who is subscribed to it."""
    assert target.keys() == members.keys()
    owners = Counter(tp for assignment in target.values() for tp in partitions_of(assignment))
    wanted = {topic_id for member in members.values() for topic_id in member.topic_ids}
    assert owners == Counter({(topic_id, p): 1 for topic_id in wanted for p in range(counts[topic_id])})
    for member_id, assignment in target.items():
        assert assignment.keys() <= members[member_id].topic_ids
        assert all(assignment.values()), "no topic without partitions"


def sizes(target: Mapping[str, Assignment]) -> dict[str, int]:
    return {member_id: len(partitions_of(assignment)) for member_id, assignment in target.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_range_cuts_every_topic_into_neighbours_of_almost_one_size(seed: int) -> None:
    group = Group(seed, is_homogeneous=seed % 2 == 0)
    for _ in range(15):
        target = group.assign("range")
        for topic_id in group.counts:
            parts = [
                target[id_].get(topic_id, frozenset()) for id_, m in group.members.items() if topic_id in m.topic_ids
            ]
            assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1
            assert all(max(part) - min(part) + 1 == len(part) for part in parts if part)
        group.take(target)
        assert group.assign("range") == target, "nothing changed, nothing moves"
        group.change()


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_balances_a_homogeneous_group_and_moves_no_partition_without_need(seed: int) -> None:
    group = Group(seed, is_homogeneous=True)
    for _ in range(15):
        target = group.assign("uniform")
        assert is_homogeneous(group.members)
        counts = sizes(target)
        assert max(counts.values()) - min(counts.values()) <= 1
        kept = sum(
            len(partitions_of(target[id_]) & partitions_of(member.assignment)) for id_, member in group.members.items()
        )
        assert kept == most_that_can_stay(group)
        group.take(target)
        assert group.assign("uniform") == target, "nothing changed, nothing moves"
        group.change()


def most_that_can_stay(group: Group) -> int:
    """How many partitions a balanced assignment can leave where they are: everybody's up to its share."""
    least, extra = divmod(sum(group.counts.values()), len(group.members))
    held = [len(partitions_of(member.assignment)) for member in group.members.values()]
    return sum(min(count, least) for count in held) + min(extra, sum(count > least for count in held))


@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_balances_a_mixed_group_as_far_as_one_topic_at_a_time_allows(seed: int) -> None:
    group = Group(seed, is_homogeneous=False)
    for _ in range(15):
        target = group.assign("uniform")
        counts = sizes(target)
        for rich in group.members:
            for topic_id in target[rich]:
                for poor, member in group.members.items():
                    assert topic_id not in member.topic_ids or counts[rich] - counts[poor] <= 1, (
                        "it could hand one over"
                    )
        group.take(target)
        assert group.assign("uniform") == target, "nothing changed, nothing moves"
        group.change()


def test_a_large_group_is_assigned_in_time() -> None:
    """1000 members, 100 topics of 100 partitions; the shard is held meanwhile."""
    topics = [bytes([65 + index // 26, 65 + index % 26]) * 8 for index in range(100)]
    counts = dict.fromkeys(topics, 100)
    alike = {f"m{number}": MemberSpec(frozenset(topics)) for number in range(1000)}
    target = assign_uniform(alike, counts)
    assert set(sizes(target).values()) == {10}
    mixed = {f"m{number}": MemberSpec(frozenset(topics[number % 10 :: 2])) for number in range(1000)}
    target = assign_uniform(mixed, counts)
    assert max(sizes(target).values()) - min(sizes(target).values()) <= 1


@pytest.mark.parametrize("topic_ids", [frozenset({A}), frozenset({A, B})], ids=["alike", "mixed"])
def test_targets_in_the_log_that_cannot_be_are_put_right(topic_ids: frozenset[bytes]) -> None:
    """Two members that claim one partition, and partitions that do not exist, as a foreign record may say."""
    claims = {A: frozenset({0, 1, -1, 99})}
    members = {"m": MemberSpec(frozenset({A}), claims), "n": MemberSpec(topic_ids, claims)}
    target = ASSIGNORS["uniform"](members, {A: 4, B: 1})
    assigned = sorted(p for assignment in target.values() for p in assignment.get(A, ()))
    assert assigned == [0, 1, 2, 3]
