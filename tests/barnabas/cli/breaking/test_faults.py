"""`barnabas faults` (faults.py), `barnabas node` (node.py) and the HTTP interface of a local cluster.

The latter is cli/local/control_page.py and cli/local/control_request.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.breaking import node
from barnabas.cli.local.running import DIRECTORY_VARIABLE
from barnabas.common.pages.page_access import of_directory
from barnabas.common.processes.cluster_file import read_cluster_file
from barnabas.faults import definition
from barnabas.faults.nodes import PROCESS_ACTIONS
from tests.barnabas.cli.conftest import Barnabas


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a running cluster with one broker and faults enabled."""
    directory = tmp_path_factory.mktemp("broken")
    command = [sys.executable, "-P", "-m", "barnabas.cli", "up", "--brokers", "1", "--port", "0"]
    command += ["--data-dir", str(directory), "--config", "barnabas.faults.enable=true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        word, *fields = process.stdout.readline().split()
        content = read_cluster_file(directory)
        assert content is not None
        assert word == "ready"
        assert f"control={content['control_url']}" in fields
        try:
            yield directory
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.fixture(autouse=True)
def chosen(directory: Path, monkeypatch: pytest.MonkeyPatch, barnabas: Barnabas) -> Iterator[None]:
    """Let commands act on that cluster; remove all faults after each test."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
    yield
    assert barnabas("faults", "remove", "--all").code == 0


def ask(directory: Path, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send an HTTP request to the cluster; return status and JSON."""
    content = read_cluster_file(directory)
    assert content is not None
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": of_directory(directory).credential}
    request = urllib.request.Request(content["control_url"] + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_fault_is_added_listed_and_removed(barnabas: Barnabas) -> None:
    added = barnabas("faults", "add", "api=Produce,Fetch", "topic=orders", "error=NOT_LEADER_OR_FOLLOWER", "times=3")
    assert added.out == ("node 0: fault f1: api=Produce,Fetch topic=orders error=NOT_LEADER_OR_FOLLOWER times=3\n")
    (row,) = barnabas("faults", "list").rows
    assert row == [
        "0",
        "f1",
        "armed",
        "0",
        "0",
        "0",
        "api=Produce,Fetch topic=orders error=NOT_LEADER_OR_FOLLOWER times=3",
    ]
    assert json.loads(barnabas("faults", "list", "--json").out)[0]["fault"]["times"] == 3
    assert barnabas("faults", "remove", "f1").out == "1 faults removed\n"
    assert barnabas("faults", "remove", "f1").err == "barnabas: there is no fault f1\n"
    assert barnabas("faults", "list").rows == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["add", "error=NO_SUCH"], "there is no error 'NO_SUCH'"),
        (["add", "api=Produce"], "a fault has exactly one effect, this one has none"),
        (["add", "node=7", "blackhole=true"], "node 7 is not running; running nodes: 0, 100"),
        (["remove"], "give the ids of the faults to remove, or --all"),
        (["list", "--data-dir", "/no/dir"], "no cluster runs in /no/dir"),
    ],
)
def test_a_mistake_is_one_line(barnabas: Barnabas, arguments: list[str], complaint: str) -> None:
    outcome = barnabas("faults", *arguments)
    assert (outcome.code, outcome.err.count("\n")) == (2 if arguments == ["remove"] else 1, 1)
    assert complaint in outcome.err


def test_a_node_is_broken_and_healed(barnabas: Barnabas) -> None:
    for arguments in (
        ["slow-disk", "0", "5", "--operation", "read", "--operation", "fsync", "--path", "*/nowhere/*"],
        ["break-disk", "0", "EROFS", "--path", "*/nowhere/*"],
        ["fill-disk", "0", "--path", "*/nowhere/*"],
        ["cut", "0", "controller", "--direction", "from", "--mode", "refuse", "--for-ms", "1"],
        ["skew", "0", "-5000"],
    ):
        assert barnabas("node", *arguments).code == 0
    faults = [row[-1] for row in barnabas("faults", "list").rows]
    assert [text.replace("node=0 ", "") for text in faults if "node=0 " in text] == [
        "disk_delay_ms=5 operations=read,fsync path=*/nowhere/*",
        "disk_error=EROFS path=*/nowhere/*",
        "disk_full=true path=*/nowhere/*",
        "cut=controller direction=from mode=refuse for_ms=1",
        "clock_skew_ms=-5000",
    ]
    assert [text for text in faults if "node=100 " in text] == ["node=100 cut=0 direction=to mode=refuse for_ms=1"]
    assert barnabas("node", "heal", "0").out == "6 faults removed\n"
    assert barnabas("faults", "list").rows == []


def test_the_steps_of_a_scenario_run(barnabas: Barnabas, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("- {throttle_ms: 5, api: Produce}\n- wait_ms: 1\n- pause: 0\n- resume: 0\n")
    outcome = barnabas("faults", "apply", str(tmp_path / "s.yaml"))
    assert outcome.out.splitlines() == ["fault: api=Produce throttle_ms=5", "wait_ms: 1", "pause: 0", "resume: 0"]
    assert len(barnabas("faults", "list").rows) == 1
    (tmp_path / "s.yaml").write_text("- {kill: x}\n")
    assert "step 1: kill must be a whole number" in barnabas("faults", "apply", str(tmp_path / "s.yaml")).err


def test_requests_are_recorded(barnabas: Barnabas, directory: Path, tmp_path: Path) -> None:
    content = read_cluster_file(directory)
    assert content is not None
    assert barnabas("faults", "record", "start").code == 0
    assert barnabas("topic", "list", "--bootstrap", content["bootstrap"]).code == 0
    assert barnabas("faults", "record", "stop").code == 0
    rows = barnabas("faults", "requests", "--api", "Metadata").rows
    assert rows
    assert {(row[0], row[1], row[5]) for row in rows} == {("0", "Metadata", "answered")}
    saved = barnabas("faults", "requests", "--save", str(tmp_path / "r.jsonl"))
    assert (
        saved.out == f"{len((tmp_path / 'r.jsonl').read_text().splitlines())} requests written to {tmp_path}/r.jsonl\n"
    )
    assert barnabas("faults", "record", "clear").code == 0
    assert barnabas("faults", "requests").rows == []


def test_the_cluster_is_controlled_by_http(directory: Path) -> None:
    status, answer = ask(directory, "GET", "/nodes")
    assert (status, [(node["id"], node["role"], node["state"]) for node in answer["nodes"]]) == (
        200,
        [(100, "controller", "running"), (0, "broker", "running")],
    )
    assert ask(directory, "POST", "/nodes/0", {"action": "pause"}) == (200, {"done": "broker-0 paused"})
    assert ask(directory, "GET", "/nodes/0")[1]["nodes"][0]["state"] == "paused"
    assert ask(directory, "POST", "/nodes/0", {"action": "resume"}) == (200, {"done": "broker-0 resumed"})
    status, answer = ask(directory, "POST", "/faults", [{"api": "Produce", "blackhole": True}, {"node": 0, "cut": 100}])
    assert (status, [len(one["places"]) for one in answer["faults"]]) == (201, [1, 2])
    assert len(ask(directory, "GET", "/faults")[1]["faults"]) == 3
    assert ask(directory, "DELETE", "/faults") == (200, {"removed": 3})
    assert ask(directory, "POST", "/scenario", [{"wait_ms": 1}]) == (201, {"steps": ["wait_ms: 1"]})
    assert ask(directory, "POST", "/recorder", {"recording": True}) == (200, {})
    assert ask(directory, "GET", "/recorder?api=Produce") == (200, {"requests": []})
    assert ask(directory, "DELETE", "/recorder") == (200, {})
    assert ask(directory, "POST", "/recorder", {"recording": False}) == (200, {})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "complaint"),
    [
        ("GET", "/", None, 404, "there is no GET / here"),
        ("DELETE", "/nodes", None, 404, "there is no DELETE /nodes here"),
        ("GET", "/nodes/7", None, 404, "there is no node 7"),
        ("POST", "/nodes/7", {"action": "kill"}, 400, "there is no node 7; the ids are 0, 100"),
        ("POST", "/nodes/0", {"action": "tickle"}, 400, "unknown action 'tickle'"),
        ("POST", "/nodes", {"action": "kill"}, 400, "expected POST /nodes/ID"),
        ("POST", "/faults", {"colour": 1}, 400, "unknown key 'colour'"),
        ("POST", "/scenario", {"kill": 0}, 400, "a scenario must be a list of steps"),
        ("POST", "/recorder", 7, 400, "the body must be"),
        ("GET", "/recorder?colour=1", None, 400, "unknown filter 'colour'"),
    ],
)
def test_mistakes_by_http(directory: Path, method: str, path: str, body: Any, status: int, complaint: str) -> None:
    answered, answer = ask(directory, method, path, body)
    assert answered == status
    assert complaint in answer["error"]


@pytest.mark.parametrize("headers", [{"Origin": "http://example.org"}, {"Host": "evil.example"}])
def test_requests_of_foreign_browser_pages_are_refused(directory: Path, headers: dict[str, str]) -> None:
    content = read_cluster_file(directory)
    assert content is not None
    url = content["control_url"] + "/faults"
    request = urllib.request.Request(url, b"{}", headers, method="POST")
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        urllib.request.urlopen(request, timeout=60)
    refused.value.close()


def test_the_options_name_what_faults_know() -> None:
    """The command line has copies, since importing barnabas.faults would slow every command down."""
    assert node.OPERATIONS == definition.OPERATIONS
    assert tuple(node.ACTIONS) == PROCESS_ACTIONS
