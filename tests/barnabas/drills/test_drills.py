"""barnabas.drills and barnabas.cli.drill: every drill is staged, looked at, repaired as its page says, and over."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.running import running_directories
from barnabas.drills.catalogue import DRILLS
from barnabas.drills.drill import Drill
from barnabas.drills.scene import Scene
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "drills"
BARNABAS = [sys.executable, "-P", "-m", "barnabas.cli"]
TIMEOUT_S = 90

#: What `barnabas explain` has to say for somebody to see what is wrong.
WORDS = {
    "dead-leader": ("is not alive", "NOT_ENOUGH_REPLICAS"),
    "slow-follower": ("is not in sync", "records behind"),
    "full-disk": ("orders-0",),
    "controller-gone": ("waits for the controller's answer",),
    "full-request-queue": ("in the request queue for a handler",),
    "saturated-handlers": ("waited in the request queue for a handler",),
    "rebalance-storm": ("billing is a classic group",),
    "poison-batch": ("records behind",),
}


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Commands find this test's drill only, and temporary directories lie within the test."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield temporary
    assert list(temporary.glob("barnabas-ephemeral-*")) == []


class Drilling:
    """A drill that is being staged by a process of its own."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen(
            [*BARNABAS, "drill", name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Drilling:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=TIMEOUT_S)

    def briefing(self) -> str:
        """What the learner is told."""
        assert self.process.stdout is not None
        told = ""
        for line in self.process.stdout:
            told += line
            if "Ctrl-C gives up." in line:
                return told
        raise AssertionError(f"it was not staged: {told}")


def run(*command: str) -> tuple[int, str]:
    """Run a command as it would be typed; exit code and output."""
    words = [*BARNABAS, *command[1:]] if command[0] == "barnabas" else list(command)
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_is_staged_seen_and_repaired(name: str) -> None:
    drill = DRILLS[name]
    with Drilling(name) as drilling:
        briefing = drilling.briefing()
        assert drill.title in briefing
        (directory,) = running_directories()
        facts = Scene(directory).facts
        with urllib.request.urlopen(f"http://{facts['page']}/live", timeout=TIMEOUT_S) as page:
            assert page.status == 200
        assert f"http://{facts['page']}/live" in briefing
        code, wrong = run("barnabas", "drill", "check")
        assert (code, wrong.strip()) != (0, "")
        assert code == 1, wrong
        explained = ""
        for command in drill.explain:
            code, told = run(*shlex.split(command.format_map(facts)))
            explained += told
        for words in WORDS[name]:
            assert words in explained
        assert run("barnabas", "drill", "solution") == (0, "".join(f"{line}\n" for line in drill.solution(facts)))
        for command_words in drill.commands(facts):
            code, told = run(*command_words)
            assert code == 0, told
        out, _ = drilling.process.communicate(timeout=TIMEOUT_S)
        assert out == f"Repaired: {name} is over.\n"
        assert drilling.process.returncode == 0


def test_a_drill_that_is_not_repaired_goes_on_until_it_is_given_up() -> None:
    with Drilling("controller-gone") as drilling:
        drilling.briefing()
        assert run("barnabas", "drill", "stop", "nobody")[1] == (
            "barnabas: there is no application nobody: there are shop, sign-up\n"
        )
        assert drilling.process.stdout is not None
        ended, _, _ = select.select([drilling.process.stdout], [], [], 2)
        assert not ended
        drilling.process.send_signal(signal.SIGINT)
        assert drilling.process.wait(TIMEOUT_S) == 130


def test_nothing_of_a_drill_outlives_it(surroundings: Path) -> None:
    with Drilling("full-request-queue") as drilling:
        drilling.briefing()
        (directory,) = running_directories()
        processes = json.loads((directory / "cluster.json").read_text())["processes"]
        drilling.process.kill()
        drilling.process.wait()
    for process in processes:
        eventually("it is gone", lambda pid=process["pid"]: not Path(f"/proc/{pid}").exists())
    with Drilling("full-request-queue") as drilling:  # which removes what the killed one left
        drilling.briefing()
        assert len(list(surroundings.glob("barnabas-ephemeral-*"))) == 1
        os.kill(drilling.process.pid, signal.SIGTERM)
        drilling.process.wait(TIMEOUT_S)


# Words


def panels() -> dict[str, set[str]]:
    """The titles of all panels by the title of their dashboard."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "dashboards" / "json").glob("*.json"):
        board = json.loads(path.read_text())
        rows = board["panels"]
        inner = [panel for row in rows for panel in row.get("panels", [])]
        found[board["title"]] = {panel["title"] for panel in [*rows, *inner] if "title" in panel}
    return found


@pytest.mark.parametrize("drill", DRILLS.values(), ids=DRILLS)
def test_what_a_drill_points_at_is_there(drill: Drill) -> None:
    boards = panels()
    for panel in drill.panels:
        assert panel.title in boards[panel.dashboard], panel


@pytest.mark.parametrize("drill", DRILLS.values(), ids=DRILLS)
def test_a_drill_has_a_page_that_tells_what_it_does(drill: Drill) -> None:
    page = (DOCS / f"{drill.name}.md").read_text()
    for panel in drill.panels:
        assert str(panel) in page
    for command in (*drill.explain, *drill.repair):
        assert command.translate(str.maketrans("{}", "<>")).upper() in page.upper(), command
    assert f"({drill.name}.md)" in (DOCS / "README.md").read_text()


def test_the_list_has_every_drill() -> None:
    code, told = run("barnabas", "drill", "list")
    assert code == 0
    assert [line.split()[0] for line in told.splitlines()] == list(DRILLS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-drill",), "there is no drill no-such-drill: see barnabas drill list"),
        (("check",), "no drill runs: barnabas drill list"),
        (("solution",), "no drill runs: barnabas drill list"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], words: str) -> None:
    assert run("barnabas", "drill", *arguments) == (1, f"barnabas: {words}\n")
