"""The assignor of share groups: examples, and the properties of every assignment."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import ItemsView, Mapping
from typing import Any

import pytest

from barnabas.broker.coordinators.assignors.simple import assign_simple
from barnabas.broker.coordinators.assignors.specs import MemberSpec, Specs
from barnabas.broker.coordinators.consumer.values import Assignment, partitions_of
from tests.broker.coordinators.assignors.test_assignors import A, B, C, shown, spec

SEEDS = range(200)


def parts(**counts: int) -> dict[bytes, frozenset[int]]:
    """Assignable partitions: `a=2` says 0 and 1 of topic A."""
    return {{"a": A, "b": B, "c": C}[name]: frozenset(range(count)) for name, count in counts.items()}


def test_every_member_gets_a_partition() -> None:
    members = {"x": spec(A), "y": spec(A), "z": spec(A)}
    assert shown(assign_simple(members, parts(a=2))) == {"x": "a0 a1", "y": "a0", "z": "a1"}


def test_every_partition_gets_a_member() -> None:
    members = {"x": spec(A, B), "y": spec(A, B)}
    assert shown(assign_simple(members, parts(a=3, b=2))) == {"x": "a0 a1 b0", "y": "a2 b1"}


def test_a_newcomer_gets_its_part_and_no_more_moves() -> None:
    members = {"x": spec(A, a=(0, 1, 2)), "y": spec(A, a=(3, 4, 5)), "z": spec(A)}
    assert shown(assign_simple(members, parts(a=6))) == {"x": "a0 a1", "y": "a3 a4", "z": "a2 a5"}


def test_members_that_are_gone_leave_their_places() -> None:
    assert shown(assign_simple({"x": spec(A, a=(0,))}, parts(a=3))) == {"x": "a0 a1 a2"}


def test_partitions_that_are_not_initialised_are_left_out() -> None:
    members = {"x": spec(A, a=(0, 1, 5)), "y": spec(A)}
    assert shown(assign_simple(members, {A: frozenset({1, 2})})) == {"x": "a1", "y": "a2"}


def test_topics_are_shared_among_their_subscribers() -> None:
    members = {"x": spec(A), "y": spec(B), "z": spec(A, B)}
    assert shown(assign_simple(members, parts(a=2, b=2))) == {"x": "a0", "y": "b0", "z": "a1 b1"}


def test_without_partitions_or_members_there_is_nothing() -> None:
    assert assign_simple({}, parts(a=1)) == {}
    assert assign_simple({"x": spec(A)}, {}) == {"x": {}}
    assert assign_simple({"x": spec()}, parts(a=1)) == {"x": {}}


def test_members_exchange_places_where_nobody_else_has_room() -> None:
    """`z` has room for one more, but has the only partition that needs a member already."""
    members = {"x": spec(A, a=(1,)), "y": spec(A, a=(1,)), "z": spec(A, a=(0,))}
    target = assign_simple(members, parts(a=2))
    assert sorted(len(partitions_of(found)) for found in target.values()) == [1, 1, 2]
    assert holders(target) == {(A, 0): 2, (A, 1): 2}


class CountedAssignment(dict[bytes, frozenset[int]]):
    """An assignment that counts the topics that are read of it."""

    read = 0

    def items(self) -> ItemsView[bytes, frozenset[int]]:
        self.read += len(self)
        return super().items()

    def get(self, topic_id: bytes, default: Any = None) -> Any:
        self.read += 1
        return super().get(topic_id, default)


def test_the_work_does_not_grow_with_the_square_of_the_topics() -> None:
    topics = [b"%016d" % n for n in range(100)]
    assignments = [CountedAssignment({id_: frozenset({0}) for id_ in topics}) for _ in range(3)]
    members = {str(n): MemberSpec(frozenset(topics), held) for n, held in enumerate(assignments)}
    members["3"] = MemberSpec(frozenset(topics[:50]))
    assign_simple(members, dict.fromkeys(topics, frozenset({0})))
    assert max(held.read for held in assignments) <= 2 * len(topics)


def holders(target: Mapping[str, Assignment]) -> Counter[tuple[bytes, int]]:
    return Counter(tp for found in target.values() for tp in partitions_of(found))


def random_group(seed: int) -> tuple[Specs, dict[bytes, frozenset[int]]]:
    """Members with whatever a log may say that they had."""
    rng = random.Random(seed)
    topics = (A, B, C)
    is_mixed = rng.random() < 0.5
    common = frozenset(rng.sample(topics, rng.randint(1, 3)))
    members = {
        f"m{number}": MemberSpec(
            frozenset(rng.sample(topics, rng.randint(0, 3))) if is_mixed else common,
            {topic: frozenset(rng.sample(range(7), rng.randint(1, 6))) for topic in topics if rng.random() < 0.6},
        )
        for number in range(rng.randint(1, 8))
    }
    return members, {topic: frozenset(rng.sample(range(6), rng.randint(0, 6))) for topic in topics}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_assignment_is_even_and_stays(seed: int) -> None:
    members, assignable = random_group(seed)
    target = assign_simple(members, assignable)
    assert target.keys() == members.keys()
    pools = [[topic] for topic in assignable]
    if len({member.topic_ids for member in members.values()}) == 1:
        pools = [sorted(next(iter(members.values())).topic_ids)]
    for pool in pools:
        subscribers = [member_id for member_id, member in members.items() if member.topic_ids.issuperset(pool)]
        places = {(topic, p) for topic in pool for p in assignable[topic]}
        found = Counter({tp: n for tp, n in holders(target).items() if tp[0] in pool})
        if not subscribers or not places:
            assert not found
            continue
        assert found == dict.fromkeys(places, -(-len(subscribers) // len(places)))
        sizes = [sum(len(target[member_id].get(topic, ())) for topic in pool) for member_id in subscribers]
        assert max(sizes) - min(sizes) <= 1
    again = {member_id: member._replace(assignment=target[member_id]) for member_id, member in members.items()}
    assert assign_simple(again, assignable) == target
