"""Whole runs of the simulator, each in an interpreter of its own: the same seed gives the same history.

Tests testing/simulation/faults.py, testing/simulation/logs.py and testing/simulation/machine/patches.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def simulate(*options: str, hash_seed: str = "0") -> tuple[int, list[str]]:
    """The exit code and the lines of a run."""
    command = [sys.executable, "-m", "tests.simulation", *options]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_two_interpreters_write_the_same_history() -> None:
    options = ("--seed", "11", "--seconds", "20")
    code, lines = simulate(*options)
    assert code == 0, lines
    assert lines[-1].startswith("digest ")
    assert any(" is killed" in line or " is paused" in line or " is cut off" in line for line in lines), lines
    assert simulate(*options, hash_seed="17") == (code, lines)


def test_seeds_differ() -> None:
    options = ("--no-faults", "--seconds", "2", "--brokers", "1")
    assert simulate("--seed", "1", *options)[1][-1] != simulate("--seed", "2", *options)[1][-1]


def test_voters_come_and_go() -> None:
    cast = (
        "brokers=1,controllers=3,voters=1,partitions=1,producers=1,readers=1,plain=0,silent=0,transactional=0,copiers=0"
    )
    story = f"{cast},classic=0,consumers=0,keyed=0,trimmed=0,meddlers=0,deciders=0,sharers=0,pipelining=0,varied=0"
    code, lines = simulate("--seed", "1", "--no-faults", "--seconds", "20", "--story", story)
    assert code == 0, lines
    (counts,) = [re.search(r"voters: (\d+) removed, (\d+) added", line) for line in lines if "voters: " in line]
    assert counts is not None
    assert 0 < int(counts[1]) <= int(counts[2])


def test_a_stored_life_is_the_same_with_pages_and_logs(tmp_path: Path) -> None:
    stored, pages = str(tmp_path / "life"), tmp_path / "pages"
    code, lines = simulate("--seed", "12", "--seconds", "5", "--story", "varied=0,brokers=3", "--keep", stored)
    assert code == 0, lines
    logs = ("--logs", str(tmp_path / "logs"), "--log-level", "DEBUG")
    assert simulate("--life", stored, "--live", str(pages), *logs) == (code, lines)
    assert re.search(r"^[\d.]+ controller-100/\S+ INFO .+ \([\w.]+\)$", (tmp_path / "logs").read_text(), re.M)
    steps = [json.loads(path.read_text()) for path in sorted(pages.iterdir())]
    assert [step["told"] for step in steps] == [line for line in lines if re.match(r" *[\d.]+ s  ", line)]
    shown = [step["nodes"]["broker-1"] for step in steps if step["nodes"]["broker-1"] is not None]
    assert shown
    assert all(page["node"]["id"] == 1 and "partitions" in page for page in shown)


def test_a_mistake_is_shrunk_to_a_short_story(tmp_path: Path) -> None:
    shortest = str(tmp_path / "life")
    cast = "brokers=3,varied=0,partitions=1,producers=2,readers=0,plain=0,silent=0,transactional=0,copiers=0,classic=0"
    story = f"{cast},consumers=0,keyed=0,trimmed=0,meddlers=0"
    options = ("--seconds", "10", "--story", story, "--mutant", "duplicates-are-appended")
    limits = ("--shrink", "--shrink-orders", "1", "--shrink-trials", "4", "--keep", shortest)
    code, lines = simulate("--seed", "1", "--runs", "20", *options, *limits)
    assert code == 1
    (counts,) = [line for line in lines if re.fullmatch(r"\d+ lives; of \d+ faults \d+ are left", line)]
    _, before, after = map(int, re.findall(r"\d+", counts))
    assert after < before
    again = f"python -m tests.simulation --life {shortest} --mutant duplicates-are-appended"
    assert lines[-1] == f"FAILED: again with: {again}"
    assert simulate(*again.split()[3:])[0] == 1


def test_a_wrong_life_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--life", str(tmp_path / "none")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "holds no life" in done.stderr.splitlines()[-1]
