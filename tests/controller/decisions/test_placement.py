"""Placement: replicas over brokers and racks."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.controller.decisions.placement import UsableBroker, place_replicas
from barnabas.protocol.errors import ApiError, ErrorCode


def brokers(*ids: int, rack: str | None = None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(id_, rack, id_ in fenced) for id_ in ids]


@pytest.mark.parametrize("seed", range(20))
def test_leaders_are_striped_over_the_brokers(seed: int) -> None:
    placed = place_replicas(brokers(0, 1, 2), 6, 2, random.Random(seed))
    assert Counter(replicas[0] for replicas in placed) == {0: 2, 1: 2, 2: 2}
    assert all(len(set(replicas)) == 2 for replicas in placed)


@pytest.mark.parametrize("seed", range(20))
def test_replicas_are_spread_over_racks(seed: int) -> None:
    rack_of = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    candidates = [UsableBroker(id_, rack, False) for id_, rack in rack_of.items()]
    for replicas in place_replicas(candidates, 12, 3, random.Random(seed)):
        assert {rack_of[id_] for id_ in replicas} == {"a", "b", "c"}


@pytest.mark.parametrize("seed", range(20))
def test_racks_of_different_size_still_give_distinct_replicas(seed: int) -> None:
    candidates = brokers(0, 1, 2, rack="a") + brokers(3, rack="b")
    for replicas in place_replicas(candidates, 9, 4, random.Random(seed)):
        assert set(replicas) == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", range(20))
def test_a_fenced_broker_never_leads_and_is_the_last_choice(seed: int) -> None:
    placed = place_replicas(brokers(0, 1, 2, fenced=(1,)), 8, 2, random.Random(seed))
    assert all(set(replicas) == {0, 2} for replicas in placed)
    placed = place_replicas(brokers(0, 1, 2, fenced=(1,)), 8, 3, random.Random(seed))
    assert all(replicas[2] == 1 for replicas in placed)


def test_a_single_broker_gets_every_replica() -> None:
    assert place_replicas(brokers(7), 3, 1, random.Random(0)) == [(7,)] * 3


@pytest.mark.parametrize(
    ("candidates", "factor", "message"),
    [
        (brokers(0), 0, "Invalid replication factor 0: the replication factor must be positive."),
        (brokers(), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (brokers(0, fenced=(0,)), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            brokers(0, 1),
            3,
            "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        ),
    ],
)
def test_impossible_placements_are_refused(candidates: list[UsableBroker], factor: int, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        place_replicas(candidates, 1, factor, random.Random(0))
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert str(caught.value) == message
