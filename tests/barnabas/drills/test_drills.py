"""Every drill is staged, explained, and repaired as its page says.

Tests cli/breaking/drill.py and barnabas/drills: applications.py, catalogue.py, drill.py, groups.py, load.py,
quorum.py, scene.py and servers.py.
"""

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

from barnabas.cli.local.running import running_directories
from barnabas.drills.catalogue import DRILLS
from barnabas.drills.drill import Drill
from barnabas.drills.scene import Scene
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "drills"
BARNABAS = [sys.executable, "-P", "-m", "barnabas.cli"]
TIMEOUT_S = 90

#: Words in the output of `barnabas explain` from which the user can recognise the problem.
WORDS = {
    "dead-leader": ("is not alive", "NOT_ENOUGH_REPLICAS"),
    "slow-follower": ("is not in sync", "records behind"),
    "full-disk": ("orders-0",),
    "controller-gone": ("waits for the controller's answer",),
    "quorum-lost": ("waits for the controller's answer",),
    "full-request-queue": ("in the request queue for a handler",),
    "saturated-handlers": ("waited in the request queue for a handler",),
    "rebalance-storm": ("billing is a classic group",),
    "poison-batch": ("records behind",),
}


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let commands find only this test's drill, and put temporary directories into the test's."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield temporary
    assert list(temporary.glob("barnabas-ephemeral-*")) == []


class Drilling:
    """A drill in its own process."""

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
        """The output until the drill is staged."""
        assert self.process.stdout is not None
        output = ""
        for line in self.process.stdout:
            output += line
            if "Ctrl-C gives up." in line:
                return output
        raise AssertionError(f"it was not staged: {output}")


def run(*command: str) -> tuple[int, str]:
    """Run a command; return its exit code and its output."""
    words = [*BARNABAS, *command[1:]] if command[0] == "barnabas" else list(command)
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_is_staged_explained_and_repaired(name: str) -> None:
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
            code, output = run(*shlex.split(command.format_map(facts)))
            explained += output
        for words in WORDS[name]:
            assert words in explained
        assert run("barnabas", "drill", "solution") == (0, "".join(f"{line}\n" for line in drill.solution(facts)))
        for command_words in drill.commands(facts):
            code, output = run(*command_words)
            assert code == 0, output
        out, _ = drilling.process.communicate(timeout=TIMEOUT_S)
        assert out == f"Repaired: {name} is over.\n"
        assert drilling.process.returncode == 0


def test_a_drill_runs_until_the_user_gives_up() -> None:
    with Drilling("controller-gone") as drilling:
        drilling.briefing()
        assert run("barnabas", "drill", "stop", "nobody")[1] == (
            "barnabas: there is no application nobody; the applications are shop, sign-up\n"
        )
        assert drilling.process.stdout is not None
        ended, _, _ = select.select([drilling.process.stdout], [], [], 2)
        assert not ended
        drilling.process.send_signal(signal.SIGINT)
        assert drilling.process.wait(TIMEOUT_S) == 130


def test_a_killed_drill_leaves_no_process_behind(surroundings: Path) -> None:
    with Drilling("full-request-queue") as drilling:
        drilling.briefing()
        (directory,) = running_directories()
        processes = json.loads((directory / "cluster.json").read_text())["processes"]
        drilling.process.kill()
        drilling.process.wait()
    for process in processes:
        eventually("it is gone", lambda pid=process["pid"]: not Path(f"/proc/{pid}").exists())
    with Drilling("full-request-queue") as drilling:  # it removes the directory of the killed one
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
def test_the_panels_of_a_drill_exist(drill: Drill) -> None:
    boards = panels()
    for panel in drill.panels:
        assert panel.title in boards[panel.dashboard], panel


@pytest.mark.parametrize("drill", DRILLS.values(), ids=DRILLS)
def test_the_page_of_a_drill_has_its_panels_and_commands(drill: Drill) -> None:
    page = (DOCS / f"{drill.name}.md").read_text()
    for panel in drill.panels:
        assert str(panel) in page
    for command in (*drill.explain, *drill.repair):
        assert command.translate(str.maketrans("{}", "<>")).upper() in page.upper(), command
    assert f"({drill.name}.md)" in (DOCS / "README.md").read_text()


def test_the_list_has_every_drill() -> None:
    code, output = run("barnabas", "drill", "list")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == list(DRILLS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no-such-drill",), "there is no drill no-such-drill: see barnabas drill list"),
        (("check",), "no drill runs: see barnabas drill list"),
        (("solution",), "no drill runs: see barnabas drill list"),
    ],
)
def test_an_unknown_drill_and_commands_without_a_drill_are_refused(arguments: tuple[str, ...], words: str) -> None:
    code = 2 if "no-such-drill" in arguments else 1
    assert run("barnabas", "drill", *arguments) == (code, f"barnabas: {words}\n")
