"""Mutants: each fits the source, those that are caught quickly are caught, and the table says what came of them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutants.mutant import MutantError, mutated
from tests.simulation.mutants.results import Result, checker_of, key_of, load, problem_of, report, save
from tests.simulation.mutants.tables.all import AREAS, MUTANTS
from tests.simulation.mutants.tables.found import FOUND

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mistake_fits_the_source(name: str) -> None:
    mutant = MUTANTS[name]
    source = (ROOT / (mutant.module_name.replace(".", "/") + ".py")).read_text()
    changed = mutated(source, mutant)
    assert changed != source
    ast.parse(changed)


def test_a_mistake_that_no_longer_fits_is_an_error() -> None:
    mutant = MUTANTS["leader-epoch-stays"]
    with pytest.raises(MutantError, match=r"controller\.image has 0 times"):
        mutated("nothing of it", mutant)
    with pytest.raises(MutantError, match=r"controller\.image has 2 times"):
        mutated(mutant.part * 2, mutant)


def test_a_fault_that_was_found_has_mutants_or_a_reason() -> None:
    for each in FOUND:
        assert each.mutants or each.why_not, each.fault
        assert set(each.mutants) <= MUTANTS.keys()


def test_no_name_is_in_two_areas() -> None:
    assert sum(map(len, AREAS.values())) == len(MUTANTS)


@pytest.mark.parametrize("name", ["duplicates-are-appended", "acks-all-answered-early"])
def test_a_mistake_on_purpose_is_caught(name: str) -> None:
    # Why several seeds: every change of the source gives a seed another history.
    options = ("--seed", "1", "--runs", "10", "--until-failure", "--seconds", "40", "--mutant", name)
    command = [sys.executable, "-m", "tests.simulation", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, ""), lines
    assert problem_of(lines), lines
    assert any(
        re.fullmatch(r"FAILED: again with: python -m tests.simulation --seed \d+ --seconds 40 --mutant " + name, line)
        for line in lines
    ), lines
    assert re.fullmatch(
        r"\d+ runs, 1 failed: \[\d+\], [\d.]+ virtual seconds, [\d.]+ in each second of a core", lines[-2]
    )
    assert lines[-1].startswith("digest ")


def test_the_problem_is_found_in_what_a_run_printed() -> None:
    lines = [
        "seed 3 of Barnabas 0.1.0",
        "story brokers=3,seconds=60",
        "  1.500000 s  broker-0 is killed",
        "t-0: epoch 3 has two leaders, 0 and 1",
        "lost: 1",
        "clients: 3 records acknowledged, 2 read",
        "61.0 virtual seconds, 400 turns",
        "FAILED: again with: python -m tests.simulation --seed 3",
        "digest 00",
    ]
    assert problem_of(lines) == "t-0: epoch 3 has two leaders, 0 and 1"
    assert problem_of(["seed 3 of Barnabas 0.1.0", "digest 00"]) == ""


@pytest.mark.parametrize(
    ("problem", "checker"),
    [
        ("lost: 17", "lost"),
        ("offset reuse: 2", "offset reuse"),
        ("the last reader did not end within 120 s of virtual time:", "no progress"),
        ("broker-1/main (task 7) ended with an exception:", "exception"),
        ("broker-1: thread ExpirationReaper-1-Produce died: KeyError(3)", "thread died"),
        ("t-0: epoch 3 has two leaders, 0 and 1", "invariant"),
        ("", ""),
    ],
)
def test_a_problem_has_a_checker(problem: str, checker: str) -> None:
    assert checker_of(problem) == checker


def test_results_are_kept_until_the_mutant_changes(tmp_path: Path) -> None:
    name = "leader-epoch-stays"
    kept = {
        name: Result(key_of(name), 4, True, "lost", "lost: 1", 2.5),
        "the-fenced-join-isrs": Result("another mistake", 4, True, "lost", "lost: 1", 2.5),
        "gone": Result("", 4, True, "lost", "lost: 1", 2.5),
    }
    save(tmp_path / "build" / "mutants.json", kept)
    assert load(tmp_path / "build" / "mutants.json") == {name: kept[name]}
    assert load(tmp_path / "none.json") == {}


def test_the_table_has_a_row_for_every_mutant() -> None:
    caught = Result("", 4, True, "invariant", "t-0: epoch 3 | two leaders", 2.5)
    missed = Result("", 2000, False, "", "", 3600.0)
    text = report({"leader-epoch-stays": caught, "the-fenced-join-isrs": missed}, ["A note."])
    assert all(f"| {name} |" in text for name in MUTANTS)
    assert "2 of them run: 1 caught, 1 of these within 50 seeds." in text
    assert "| 4 | t-0: epoch 3 \\| two leaders | 2 |" in text
    assert "| not in 2000 | | 3600 |" in text
    assert "A note." in text
    assert all(f"| {each.number} | {each.fault} |" in text for each in FOUND)
