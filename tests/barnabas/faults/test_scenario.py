"""Scenarios in files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.faults import Fault, FaultError, Faults
from barnabas.faults.pages import NodePage
from barnabas.faults.scenario import Scenario


class Rehearsal:
    """A cluster that only records the requests to it."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.state: dict[str, Any] = {"fired": 0, "calls": 0, "held": 0, "events": []}
        self.broken = ""

    def pages(self) -> dict[int, NodePage]:
        return {0: RehearsedPage(self, 0), 1: RehearsedPage(self, 1)}

    def ids(self) -> frozenset[int]:
        return frozenset({0, 1, 2})  # 2 is down

    def act(self, action: str, node_id: int) -> str:
        if action == self.broken:
            raise FaultError("no")
        self.log.append((action, node_id))
        return ""


class RehearsedPage(NodePage):
    def __init__(self, rehearsal: Rehearsal, node_id: int) -> None:
        super().__init__(node_id, "broker", "h", 1)
        self._rehearsal = rehearsal

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        self._rehearsal.log.append((method, path, self.node_id, body))
        return (
            {"faults": [{"id": "f1", **self._rehearsal.state}], "node": self.node_id}
            if method == "POST"
            else {
                "faults": [],
                "node": self.node_id,
            }
        )

    def find(self, method: str, path: str) -> dict[str, Any] | None:
        self._rehearsal.log.append((method, path, self.node_id))
        return {"id": "f1", **self._rehearsal.state}


TEXT = """
# an incident
- {api: Produce, topic: orders, error: NOT_LEADER_OR_FOLLOWER, times: 3, node: 0}
- wait_ms: 1
- kill: 1
- start: [1, 0]
- record: true
- heal: 1
"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_steps_are_taken_in_order(tmp_path: Path, wrapped: bool) -> None:
    text = "faults:\n" + "\n".join(f"  {line}" for line in TEXT.splitlines()) if wrapped else TEXT
    (tmp_path / "incident.yaml").write_text(text)
    rehearsal, told = Rehearsal(), []
    scenario = Scenario.load(tmp_path / "incident.yaml")
    handles = scenario.run(Faults(rehearsal), told.append)
    fault = {"api": ["Produce"], "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 3, "node": 0}
    assert rehearsal.log == [
        ("POST", "/faults", 0, fault),
        ("kill", 1),
        ("start", 1),
        ("start", 0),
        ("POST", "/recorder", 0, {"recording": True}),
        ("POST", "/recorder", 1, {"recording": True}),
        ("GET", "/faults", 0, None),
        ("GET", "/faults", 1, None),
    ]
    assert [handle.fault for handle in handles] == [Fault.parse(fault)]
    assert told == [
        "fault: api=Produce node=0 topic=orders error=NOT_LEADER_OR_FOLLOWER times=3",
        "wait_ms: 1",
        "kill: 1",
        "start: 1, 0",
        "record: true",
        "heal: 1",
    ]


def test_json_is_yaml_too(tmp_path: Path) -> None:
    (tmp_path / "incident.json").write_text('[{"kill": 1}]')
    assert [str(step) for step in Scenario.load(tmp_path / "incident.json").steps] == ["kill: 1"]


def test_a_failing_step_removes_the_faults_before_it() -> None:
    rehearsal = Rehearsal()
    rehearsal.broken = "kill"
    with pytest.raises(FaultError):
        Scenario.parse([{"blackhole": True, "node": 1}, {"kill": 0}]).run(Faults(rehearsal))
    assert rehearsal.log[-1] == ("DELETE", "/faults/f1", 1)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"a": 1}, "a scenario must be a list of steps"),
        ([{"kill": 1}, 7], "step 2: a step must be an object with keys and values"),
        ([{"kill": "x"}], "step 1: kill must be a whole number"),
        ([{"kill": 1, "wait_ms": 5}], "step 1: a step with kill can have no other key"),
        ([{"wait_ms": -1}], "step 1: wait_ms must be a whole number between 0 and"),
        ([{"record": 1}], "step 1: record must be true or false"),
        ([{"error": "NO_SUCH"}], "step 1: there is no error 'NO_SUCH'"),
        ([{}], "step 1: a fault has exactly one effect, this one has none"),
    ],
)
def test_the_whole_file_is_checked_first(values: Any, complaint: str) -> None:
    with pytest.raises(FaultError, match=complaint):
        Scenario.parse(values)


def test_a_link_to_a_node_that_is_down_is_cut_and_to_one_that_does_not_exist_is_not() -> None:
    assert Faults(Rehearsal()).node(1).cut_off(2).ids == [(1, "f1")]
    for ends in ((1, 77), (77, 1)):
        with pytest.raises(FaultError, match="there is no node 77; the ids are 0, 1, 2"):
            Faults(Rehearsal()).node(ends[0]).cut_off(ends[1])


def test_a_file_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "image.yaml").write_bytes(b"- \xff")
    with pytest.raises(FaultError, match=r"image.yaml is not UTF-8: invalid start byte at byte 2$"):
        Scenario.load(tmp_path / "image.yaml")


def test_yaml_without_pyyaml_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "incident.yaml").write_text("- kill: 1")
    with pytest.raises(FaultError, match=r"\(pip install pyyaml\)"):
        Scenario.load(tmp_path / "incident.yaml")


def test_invalid_yaml(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("- {a: [")
    with pytest.raises(FaultError, match="invalid YAML") as refused:
        Scenario.load(tmp_path / "broken.yaml")
    assert "\n" not in str(refused.value)
