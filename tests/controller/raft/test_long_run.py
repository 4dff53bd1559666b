"""A run of many worlds can be stopped and goes on, with the same digest; a broken rule ends it and names its world."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.controller.raft import long_run
from tests.controller.raft.long_run import Progress, kept_in, load, run
from tests.controller.raft.simulator.mutants import MUTANTS, mistake


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_run, "STEPS_OF_A_WORLD", 2_000)
    monkeypatch.setattr(long_run, "SAVE_EVERY", 2)


def test_a_stopped_run_goes_on_with_the_same_digest(tmp_path: Path) -> None:
    whole, said = Progress(7), list[str]()
    assert run(whole, 10_000, 1, None, said.append)
    assert whole.worlds == 5
    assert whole.counts["election"] > whole.counts["leader deposed"] > 0
    assert said == [whole.report()]
    file = kept_in(tmp_path, 7)
    run(load(file, 7), 6_000, 1, file, said.append)
    assert load(file, 7).worlds == 3
    again = load(file, 7)
    assert run(again, 10_000, 2, file, said.append)
    assert again == load(file, 7) == whole
    assert said[-2].startswith("goes on after 6")
    assert run(load(file, 7), 10_000, 1, file, said.append), "nothing is left to do"
    assert load(file, 7) == whole


def test_workers_end_whatever_the_process_does_with_signals() -> None:
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert run(Progress(7), 10_000, 2, None, lambda _line: None)
    finally:
        signal.signal(signal.SIGTERM, former)


def test_a_broken_rule_ends_the_run(tmp_path: Path) -> None:
    said = list[str]()
    file = tmp_path / "kept.json"
    with mistake(MUTANTS["forgets the vote at a restart"]):
        assert not run(Progress(1), 2_000_000, 1, file, said.append)
    assert said[-1].startswith("FAILED: ")
    assert said[-1].endswith(f"world {load(file, 1).worlds + 1}") or load(file, 1).worlds % 2 == 0
