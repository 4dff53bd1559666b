"""Tests benchmarks/wide/__main__.py: its options, the order of its measurements, and what a failure leaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner

from benchmarks.report.figures import OURS, THEIRS
from benchmarks.rounds import Results
from benchmarks.systems import System, barnabas
from benchmarks.wide import __main__ as command
from benchmarks.wide import figures
from benchmarks.wide.__main__ import PARTS, Part, held, main, measure_all, numbers, turns
from benchmarks.wide.figures import CONNECTIONS, GROUPS, PARTITIONS
from benchmarks.wide.measures import Sample, Tools


def test_numbers_are_sorted() -> None:
    assert numbers(cast(click.Context, None), cast(click.Parameter, None), "1000, 10,10_000,10") == [10, 1000, 10_000]


@pytest.mark.parametrize("option", ["--partitions", "--connections", "--groups"])
@pytest.mark.parametrize("wrong", ["", "10,", "0", "-1", "many"])
def test_numbers_are_numbers(option: str, wrong: str) -> None:
    result = CliRunner().invoke(main, [option, wrong])
    assert result.exit_code == 2
    assert option in result.output


def test_more_connections_than_a_process_may_have_are_named_by_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "possible", lambda count: min(count, 4_000))
    assert held([10, 5_000, 19_000]) == [10, 4_000]


def test_the_first_system_changes_from_round_to_round() -> None:
    parts = {name: PARTS[name] for name in ("one", "connections")}
    counts = {PARTITIONS: [10], CONNECTIONS: [100, 1000], GROUPS: [1]}
    assert list(turns(parts, counts, ["a", "b"], 0)) == [
        ("one", 10, "a"),
        ("one", 10, "b"),
        ("connections", 100, "a"),
        ("connections", 100, "b"),
        ("connections", 1000, "a"),
        ("connections", 1000, "b"),
    ]
    assert [system for _, _, system in turns(parts, counts, ["a", "b"], 1)] == ["b", "a"] * 3


def test_what_failed_is_not_tried_again(tmp_path: Path) -> None:
    tried: list[tuple[str, int]] = []

    def measure(_: Tools, system: System, partitions: int) -> Generator[Sample, None, None]:
        tried.append((system.name, partitions))
        yield figures.CREATED, 1.0
        if (system.name, partitions) == (THEIRS, 100):
            raise AssertionError("it broke")
        yield figures.KNOWN, 2.0

    parts = {"three": Part(PARTITIONS, 3, measure)}
    results: Results = defaultdict(lambda: defaultdict(list))
    lines: list[str] = []
    makes = {THEIRS: barnabas(THEIRS), OURS: barnabas()}
    tools = cast(Tools, None)
    failed = measure_all(tools, makes, parts, {PARTITIONS: [10, 100]}, 2, tmp_path, lines.append, results)
    assert failed == [f"three, 100 partitions, {THEIRS}"]
    assert tried == [(THEIRS, 10), (OURS, 10), (THEIRS, 100), (OURS, 100), (OURS, 10), (THEIRS, 10), (OURS, 100)]
    assert results[PARTITIONS.named(figures.KNOWN, 100)] == {OURS: [2.0, 2.0]}
    assert results[PARTITIONS.named(figures.KNOWN, 10)] == {THEIRS: [2.0, 2.0], OURS: [2.0, 2.0]}
    assert [line for line in lines if "it broke" in line]


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path) -> None:
    def measure(_: Tools, __: System, ___: int) -> Generator[Sample, None, None]:
        yield figures.CREATED, 1.0
        raise KeyboardInterrupt

    parts, counts = {"three": Part(PARTITIONS, 3, measure)}, {PARTITIONS: [10]}
    results: Results = defaultdict(lambda: defaultdict(list))
    failed = measure_all(cast(Tools, None), {OURS: barnabas()}, parts, counts, 2, tmp_path, lambda _: None, results)
    assert failed == ["what was left when it was stopped"]
    assert results == {PARTITIONS.named(figures.CREATED, 10): {OURS: [1.0]}}
