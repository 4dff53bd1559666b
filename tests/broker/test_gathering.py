from __future__ import annotations

from barnabas.broker.gathering import Gathering


def test_the_last_result_brings_all() -> None:
    told: list[dict[str, int]] = []
    gathering: Gathering[str, int] = Gathering(2, told.append)
    gathering.add("a", 1)
    assert told == []
    gathering.add("b", 2)
    assert told == [{"a": 1, "b": 2}]


def test_nothing_to_wait_for() -> None:
    told: list[dict[str, int]] = []
    Gathering(0, told.append)
    assert told == [{}]
