"""Which failed tests run once more, in runs of pytest with tests that fail the first time. Covers support/reruns.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.reruns import MAX, PATHS, may_run_again

ROOT = Path(__file__).parents[1]
RUN_TIMEOUT_S = 120

TESTS = """
import os
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.support.waiting import eventually

SEEN = Path(__file__).parents[2] / "seen"


def is_first(name):
    with SEEN.open("a") as seen:
        print(name, file=seen)
    return SEEN.read_text().splitlines().count(name) == 1


def wait():
    eventually("it ends", lambda: False, 0)


@pytest.fixture(scope="module")
def cluster():
    is_first("cluster")
    yield
    is_first("cluster stopped")


@pytest.fixture(scope="module")
def slow_cluster():
    if is_first("slow_cluster"):
        wait()


def test_wait(cluster):
    if is_first("wait"):
        wait()


def test_client():
    if is_first("client"):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_fixture(slow_cluster):
    pass


def test_wait_again(cluster):
    is_first("wait_again")
    wait()


def test_value(cluster):
    assert not is_first("value")


def test_end_of_process():
    if is_first("end_of_process"):
        os._exit(1)
"""


def run(
    directory: Path, *names: str, options: tuple[str, ...] = (), folder: str = "clients"
) -> tuple[dict[str, set[str]], Counter[str], str]:
    """Run some of TESTS; return each test's outcomes, how often each part began, and the output."""
    file = directory / "tests" / folder / "test_it.py"
    file.parent.mkdir(parents=True)
    file.write_text(TESTS)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib --strict-markers\n")
    command = [sys.executable, "-P", "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-q", "-rAR", "--color=no", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *(f"{file}::test_{name}" for name in names)], cwd=directory, env=environment,
        capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
    )  # fmt: skip
    outcomes: dict[str, set[str]] = {}
    for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR|RERUN) \S+::test_(\w+)", done.stdout, re.MULTILINE):
        outcomes.setdefault(name, set()).add(outcome)
    return outcomes, Counter((directory / "seen").read_text().splitlines()), done.stdout


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_failed_test_runs_once_more_and_is_reported(tmp_path: Path, options: tuple[str, ...]) -> None:
    outcomes, seen, output = run(tmp_path, "wait", "client", "fixture", options=options)
    again = {"RERUN", "PASSED"}
    assert outcomes == {"wait": again, "client": again, "fixture": again}, output
    assert seen == {"wait": 2, "client": 2, "slow_cluster": 2, "cluster": 1, "cluster stopped": 1}
    assert "WaitTimeoutError: not within 0 ms: it ends (last: False)" in output
    assert "3 passed, 3 rerun" in output


def test_the_end_of_a_process_is_final(tmp_path: Path) -> None:
    outcomes, seen, output = run(tmp_path, "end_of_process", options=("-n", "1"))
    assert (outcomes, seen["end_of_process"]) == ({"end_of_process": {"FAILED"}}, 1), output


def test_a_failure_is_final_the_second_time_and_after_so_many_reruns(tmp_path: Path) -> None:
    assert MAX == 3
    outcomes, seen, output = run(tmp_path, "wait_again", "wait", "client", "value")
    assert (outcomes["wait_again"], seen["wait_again"]) == ({"RERUN", "FAILED"}, 2), output
    assert (outcomes["value"], seen["value"]) == ({"FAILED"}, 1), output


def test_where_a_failure_may_be_a_lost_record_it_is_final(tmp_path: Path) -> None:
    outcomes, seen, output = run(tmp_path, "wait", folder="crash")
    assert (outcomes, seen["wait"]) == ({"wait": {"FAILED"}}, 1), output


def test_paths() -> None:
    assert [path for path in PATHS if not (ROOT / "tests" / path).exists()] == []
    assert may_run_again(Path("tests/live_page/test_page.py"))
    assert may_run_again(Path("tests/metrics/test_values.py"))
    assert not may_run_again(Path("tests/metrics/test_registry.py"))
    for folder in ("crash", "broker", "controller", "stress", "churn", "eos", "fuzz", "simulation", "pipeline"):
        assert not may_run_again(Path("tests", folder, "test_it.py"))
