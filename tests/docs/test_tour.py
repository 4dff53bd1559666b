"""docs/tour.md: its commands are carried out, in order, and show what it says.

A fenced block of `console` holds commands (`$ …`), each followed by lines that it prints, some of all, in order; `…`
is any text. `barnabas up` runs in a terminal of its own until the end. `barnabas top` and `barnabas explain` are looked
at until they show what is promised, as a reader does who watches.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.common.clock import SystemClock
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "docs" / "tour.md"
SERVER = "barnabas up "
WATCHED = ("barnabas top ", "barnabas explain ")
TIMEOUT_S = 60
BACKGROUND = re.compile(r"&( done)?$")
END = "--- end of command ---"


class Step(NamedTuple):
    """A command, and patterns of what it prints."""

    command: str
    promised: list[str]


def steps(text: str) -> list[Step]:
    """The steps of a text, in order."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S):
        assert block.startswith("$ "), "a block begins with a command"
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:], []))
            else:
                found[-1].promised.append(line)
    return found


def missing(promised: list[str], printed: str) -> str | None:
    """The first promised line that was not printed after those before it; None if all were."""
    lines = iter(printed.splitlines())
    for promise in promised:
        pattern = ".*".join(re.escape(" ".join(part.split())) for part in promise.split("…"))
        if not any(re.fullmatch(pattern, " ".join(line.split())) for line in lines):
            return promise
    return None


class Terminal:
    """A shell that is typed into. What its jobs in the background print comes up between what is typed: `of_jobs` has
    all that was printed since the last ones were started.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        self.of_jobs = ""

    def type(self, command: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{command}\n".encode())
        self._shell.stdin.flush()

    def read_until(self, is_enough: re.Pattern[str]) -> str:
        """What is printed up to what is waited for."""
        assert self._shell.stdout is not None
        clock, printed = SystemClock(), b""
        end_ms = clock.monotonic_ms() + TIMEOUT_S * 1000
        while not is_enough.search(printed.decode()):
            left_ms = end_ms - clock.monotonic_ms()
            assert left_ms > 0, f"no {is_enough.pattern!r} within {TIMEOUT_S} s in: {printed.decode()}"
            if select.select([self._shell.stdout], [], [], left_ms / 1000)[0]:
                piece = os.read(self._shell.stdout.fileno(), 65536)
                assert piece, f"the shell ended: {printed.decode()}"
                printed += piece
        return printed.decode()

    def run(self, command: str) -> str:
        """What a command prints."""
        if BACKGROUND.search(command):
            self.of_jobs = ""
        self.type(command)
        self.type(f"echo; echo '{END}'")
        printed = self.read_until(re.compile(re.escape(END))).replace(END, "")
        self.of_jobs += printed
        return printed

    def close(self) -> None:
        """Ctrl-C to whatever runs, and the end."""
        os.killpg(self._shell.pid, signal.SIGINT)
        try:
            self._shell.communicate(timeout=TIMEOUT_S)
        finally:
            if self._shell.poll() is None:
                os.killpg(self._shell.pid, signal.SIGKILL)
                self._shell.wait()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where `barnabas` is a command, and no other cluster runs."""
    commands, runtime = tmp_path / "bin", tmp_path / "runtime"
    commands.mkdir()
    runtime.mkdir()
    command = commands / "barnabas"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m barnabas.cli "$@"\n')
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "BARNABAS_BOOTSTRAP"}
    return {
        **kept,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_RUNTIME_DIR": str(runtime),
        "TMPDIR": str(tmp_path),
    }


@pytest.fixture
def first(environment: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(environment)
    yield terminal
    terminal.close()


@pytest.fixture
def second(environment: dict[str, str], first: Terminal) -> Iterator[Terminal]:
    terminal = Terminal(environment)
    yield terminal
    terminal.close()


def test_the_tour(first: Terminal, second: Terminal) -> None:
    for step in steps(TOUR.read_text()):
        if step.command.startswith(SERVER):
            first.type(step.command)
            printed = first.read_until(re.compile(r"^(ready|barnabas:).*\n", re.M))
        elif step.command.startswith(WATCHED):
            printed = watched(second, step)
        else:
            printed = second.run(step.command)
            if step.command == "wait":
                printed = second.of_jobs
        assert missing(step.promised, printed) is None, f"$ {step.command}\n{printed}"


def watched(terminal: Terminal, step: Step) -> str:
    """What a command shows once it shows what is promised."""
    shown: list[str] = []

    def look() -> bool:
        shown.append(terminal.run(step.command))
        return missing(step.promised, shown[-1]) is None

    try:
        eventually(f"$ {step.command} shows all of {step.promised}", look)
    except AssertionError as error:
        raise AssertionError(f"{error}; it showed:\n{shown[-1]}") from error
    return shown[-1]


def test_the_reading_of_the_tour_can_fail() -> None:
    text = "x\n```console\n$ a\nb … c\n$ d\n```\n```\n$ no command\n```\n"
    assert steps(text) == [Step("a", ["b … c"]), Step("d", [])]
    assert missing(["b … c", "e"], "x\nb 1  2 c\ny\ne\n") is None
    assert missing(["b … c", "e"], "e\nb 1 c\n") == "e"
    assert missing(["b … c"], "b c d\n") == "b … c"
