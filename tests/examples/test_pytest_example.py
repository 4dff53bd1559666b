"""examples/pytest as a user runs it: from an installed wheel, in a new virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.common.clock import SystemClock

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "pytest"
TIMEOUT_S = 300
#: testcontainers-java's own test of its Kafka container, by its maintainer (docs/testing.md).
TESTCONTAINERS_S = 9


def run(directory: Path, *command: str | Path, **environment: str) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=directory,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel, built from a copy of the sources without the files of other builds."""
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    source.mkdir()
    for name in ("barnabas", "broker", "controller", "metrics"):
        run(ROOT, "cp", "-r", ROOT / name, source)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        run(ROOT, "cp", ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", directory)
    run(source, *pip, "wheel", *options, ".", BARNABAS_PURE="1")
    (found,) = directory.glob("barnabas-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the example's requirements, and Barnabas from the wheel."""
    directory = tmp_path_factory.mktemp("environment")
    run(directory, sys.executable, "-m", "venv", "--without-pip", directory)
    wanted = (EXAMPLE / "requirements.txt").read_text().split()
    wanted[wanted.index("barnabas[test]")] = f"{wheel}[test]"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(directory, *pip, "--python", directory / "bin" / "python", "install", *wanted)
    return directory


def timed(work: Callable[[], str]) -> tuple[float, str]:
    """Run the work; return its duration in seconds, and its result."""
    clock = SystemClock()
    start_ms = clock.monotonic_ms()
    result = work()
    return (clock.monotonic_ms() - start_ms) / 1000, result


def test_the_example_passes_start_to_finish(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = environment / "bin" / "python"
    options = ("-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider")
    whole_s, out = timed(lambda: run(EXAMPLE, python, *options, PYTHONDONTWRITEBYTECODE="1"))
    assert "11 passed" in out, out
    one = "tests/test_confluent.py::test_a_sale_is_announced"
    one_s, out = timed(lambda: run(EXAMPLE, python, *options, one, PYTHONDONTWRITEBYTECODE="1"))
    assert "1 passed" in out, out
    with capsys.disabled():
        print(
            f"\nexamples/pytest, start to finish: all 11 tests, with two clusters and a broker killed, {whole_s:.1f} s;"
            f" one test {one_s:.1f} s. testcontainers-java's one: {TESTCONTAINERS_S} s (its pull request 2078)"
        )


def test_the_example_passes_in_parallel(environment: Path) -> None:
    python = environment / "bin" / "python"
    options = ("-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", "-n", "2")
    out = run(EXAMPLE, python, *options, "tests/test_kafka_python.py", PYTHONDONTWRITEBYTECODE="1")
    assert "4 passed" in out, out
