"""The partition counts of internal topics: each rule, and a comparison with a simple computation."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from barnabas.broker.coordinators.streams_groups.topology.partition_counts import (
    IncorrectlyPartitionedError,
    partition_counts,
)
from barnabas.broker.coordinators.streams_groups.values import Subtopology, Topology
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology

# (subtopologies, topics that exist, decided)
MANY = "abcdefghijklmnopqrstuv"

TABLE: dict[str, tuple[list[Subtopology], dict[str, int], dict[str, int]]] = {
    "no internal topics": ([subtopology("0", "a")], {"a": 3}, {}),
    "a changelog has a partition for each task": (
        [subtopology("0", "a b", changelogs="c d")], {"a": 3, "b": 5}, {"c": 5, "d": 5},
    ),
    "a repartition topic has the count of the subtopology that writes it": (
        [subtopology("0", "a b", writes="r"), subtopology("1", reads="r", changelogs="c")], {"a": 3, "b": 2},
        {"r": 3, "c": 3},
    ),
    "the application names the count": (
        [subtopology("0", "a", writes="r"), subtopology("1", reads="r=7", changelogs="c")], {"a": 3}, {"r": 7, "c": 7},
    ),
    "a chain, in any order of ids": (
        [
            subtopology("0", reads="s", changelogs="c"), subtopology("1", reads="r", writes="s"),
            subtopology("2", "a", writes="r"),
        ],
        {"a": 4}, {"r": 4, "s": 4, "c": 4},
    ),
    "the first subtopology that writes a topic decides": (
        [subtopology("0", "a", writes="r"), subtopology("1", "b", writes="r"), subtopology("2", reads="r")],
        {"a": 1, "b": 9}, {"r": 1},
    ),
    "what is not known yet does not count": (
        [subtopology("0", "a", reads="s", writes="r"), subtopology("1", reads="r", writes="s", changelogs="c")],
        {"a": 2}, {"r": 2, "s": 2, "c": 2},
    ),
    "a count that exists decides for what follows": (
        [subtopology("0", "a", writes="r"), subtopology("1", reads="r", changelogs="c")], {"a": 3, "r": 8},
        {"r": 3, "c": 8},
    ),
    "copartitioned with a source topic": (
        [subtopology("0", "a", writes="r"), subtopology("1", "b", reads="r", changelogs="c", together=["b r"])],
        {"a": 3, "b": 5}, {"r": 5, "c": 5},
    ),
    "copartitioned repartition topics: the greatest": (
        [
            subtopology("0", "a", writes="r"), subtopology("1", "b", writes="s"),
            subtopology("2", reads="r s", changelogs="c", together=["r s"]),
        ],
        {"a": 3, "b": 5}, {"r": 5, "s": 5, "c": 5},
    ),
    "copartitioned repartition topics: the count that the application names": (
        [
            subtopology("0", "a", writes="r"), subtopology("1", "b", writes="s"),
            subtopology("2", reads="r s=2", changelogs="c", together=["r s"]),
        ],
        {"a": 3, "b": 5}, {"r": 2, "s": 2, "c": 2},
    ),
    "a repartition topic of another group does not decide": (
        [
            subtopology("0", "a", writes="r s t"),
            subtopology("1", reads="r s", changelogs="c", together=["r s"]), subtopology("2", reads="t=9"),
        ],
        {"a": 3}, {"r": 3, "s": 3, "t": 9, "c": 3},
    ),
    "a group without topics": ([subtopology("0", "a", changelogs="c", together=[""])], {"a": 3}, {"c": 3}),
    "a group of one source topic": ([subtopology("0", "a", together=["a"])], {"a": 3}, {}),
    "a topic that the application reads and writes": (
        [subtopology("0", "a", reads="r", writes="r", changelogs="c")], {"a": 3}, {"r": 3, "c": 3},
    ),
    "a topic that nobody reads": ([subtopology("0", "a", writes="r")], {"a": 3}, {"r": 3}),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_counts(name: str) -> None:
    subtopologies, existing, expected = TABLE[name]
    assert partition_counts(topology(*subtopologies), existing.get) == expected


@pytest.mark.parametrize(
    ("subtopologies", "existing", "message"),
    [
        (
            [subtopology("0", "a b", together=["a b"])], {"a": 3, "b": 5},
            "Following topics do not have the same number of partitions: [{a=3, b=5}]",
        ),
        (
            [subtopology("0", " ".join(MANY), together=[" ".join(MANY)])],
            {name: at for at, name in enumerate(MANY, 1)},
            "Following topics do not have the same number of partitions: ["
            "{a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=10, k=11, l=12, m=13, n=14, o=15, p=16, q=17, r=18, s=19,"
            " t=20 and 2 more}]",
        ),
        (
            [subtopology("0", "a", writes="r s t"), subtopology("1", reads="r=2 s=4 t", together=["r s t"])], {"a": 3},
            "Following topics do not have the same number of partitions: [{r=2, s=4, t=3}]",
        ),
        (
            [subtopology("0", "a", writes="r"), subtopology("1", "b", reads="r=7", together=["b r"])],
            {"a": 3, "b": 5},
            "Number of partitions [7] of repartition topic [r] doesn't match number of partitions [5] of the source "
            "topic.",
        ),
    ],
)  # fmt: skip
def test_topics_that_cannot_be_copartitioned(
    subtopologies: list[Subtopology], existing: dict[str, int], message: str
) -> None:
    with pytest.raises(IncorrectlyPartitionedError) as caught:
        partition_counts(topology(*subtopologies), existing.get)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("subtopologies", "message"),
    [
        ([subtopology("0", reads="r", writes="r")], "There may be loops in the topology that cannot be resolved."),
        (
            [subtopology("0", reads="s", writes="r"), subtopology("1", reads="r", writes="s")],
            "There may be loops in the topology that cannot be resolved.",
        ),
        ([subtopology("0", "a", reads="r")], "a repartition source topic is never used as a sink topic."),
    ],
)
def test_counts_that_cannot_be_decided(subtopologies: list[Subtopology], message: str) -> None:
    with pytest.raises(ApiError, match="Failed to compute number of partitions for all repartition topics") as caught:
        partition_counts(topology(*subtopologies), {"a": 3}.get)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("changelogs", ["", "c"])
def test_a_subtopology_reads_something(changelogs: str) -> None:
    with pytest.raises(ApiError, match="No source topics found for subtopology 1") as caught:
        partition_counts(topology(subtopology("0", "a"), subtopology("1", changelogs=changelogs)), {"a": 3}.get)
    assert caught.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def by_passes(found: Topology, existing: Mapping[str, int]) -> dict[str, int] | None:
    """Decide the counts of repartition topics by passes over all subtopologies; None if there are loops."""
    decided = {
        topic.name: topic.partitions
        for each in found.subtopologies.values() for topic in each.repartition_sources if topic.partitions
    }  # fmt: skip
    while True:
        before = len(decided)
        for _, each in sorted(found.subtopologies.items()):
            known = [decided[topic.name] for topic in each.repartition_sources if topic.name in decided]
            known += [existing[name] for name in each.source_topics]
            for sink in each.repartition_sinks:
                if sink not in decided and known:
                    decided[sink] = max(known)
        if len(decided) == before:
            sinks = {sink for each in found.subtopologies.values() for sink in each.repartition_sinks}
            return decided if sinks <= decided.keys() else None


def some_topology(rng: random.Random) -> Topology:
    names = [f"r{i}" for i in range(rng.randint(1, 6))]

    def some() -> list[str]:
        return rng.sample(names, min(len(names), rng.randint(0, 3)))

    return topology(
        *(
            subtopology(
                str(id_), rng.choice(("", "", "a", "b", "a b")), writes=" ".join(some()),
                reads=" ".join(f"{name}={rng.choice((0, 0, 0, 4))}" for name in some()),
            )
            for id_ in range(rng.randint(1, 6))
        )
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_the_counts_are_those_of_repeated_passes(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = set()
    for _ in range(100):
        found, existing = some_topology(rng), {"a": 2, "b": 3}
        expected = by_passes(found, existing)
        read = {topic.name for each in found.subtopologies.values() for topic in each.repartition_sources}
        has_sources = all(each.all_sources for each in found.subtopologies.values())
        is_valid = expected is not None and read <= expected.keys() and has_sources
        outcomes.add(is_valid)
        if is_valid:
            assert partition_counts(found, existing.get) == expected
        else:
            with pytest.raises(ApiError):
                partition_counts(found, existing.get)
    assert outcomes == {True, False}


def test_a_long_chain_in_the_worst_order_takes_one_step_each() -> None:
    """Passes over all of them would take 4000 x 4000 steps, under the lock of the group's shard."""
    asked: list[str] = []

    def existing(name: str) -> int | None:
        asked.append(name)
        return 3 if name == "a" else None

    links = [subtopology(f"{9999 - i}", reads=f"r{i}", writes=f"r{i + 1}") for i in range(4000)]
    first = subtopology("99999", "a", writes="r0")
    decided = partition_counts(topology(first, *links), existing)
    assert set(decided.values()) == {3}
    assert len(decided) == 4001
    assert len(asked) < 3 * len(decided)
