"""Gathering: the last result of several completes them all."""

from __future__ import annotations

from barnabas.broker.requests.gathering import Gathering


def test_the_last_result_completes_all() -> None:
    results: list[dict[str, int]] = []
    gathering: Gathering[str, int] = Gathering(2, results.append)
    gathering.add("a", 1)
    assert results == []
    gathering.add("b", 2)
    assert results == [{"a": 1, "b": 2}]


def test_no_expected_results_complete_at_once() -> None:
    results: list[dict[str, int]] = []
    Gathering(0, results.append)
    assert results == [{}]
