"""Scenarios: faults and node actions in a YAML (or JSON) file, one after another.

    - {api: Produce, topic: orders, error: NOT_LEADER_OR_FOLLOWER, times: 3}
    - wait_ms: 2000
    - kill: 1
    - wait_ms: 5000
    - start: 1
    - {node: 2, disk_delay_ms: 50, operations: [fsync]}
    - heal: 2

A step is a fault (with the keys of docs/faults.md), or one of `kill`, `stop`, `start`, `pause`, `resume` and `heal`
with a node's id or a list of them, or `wait_ms`, or `record: true` or `false`. The whole file is checked before the
first step.
"""

from __future__ import annotations

import json
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.common.clock import SystemClock
from barnabas.faults.client import Faults
from barnabas.faults.definition import CHECKS, MS_MAX, Fault, FaultError
from barnabas.faults.handle import FaultHandle
from barnabas.faults.nodes import PROCESS_ACTIONS

HEAL: Final = "heal"
WAIT: Final = "wait_ms"
RECORD: Final = "record"
NODE_STEPS: Final = (*PROCESS_ACTIONS, HEAL)

Report = Callable[[str], object]


@dataclass(frozen=True)
class Step:
    """One step: a fault, or a verb and its object."""

    verb: str
    fault: Fault | None = None
    nodes: tuple[int, ...] = ()
    wait_ms: int = 0
    is_on: bool = False

    def __str__(self) -> str:
        if self.fault is not None:
            return f"fault: {self.fault}"
        about = {WAIT: self.wait_ms, RECORD: str(self.is_on).lower()}.get(self.verb, ", ".join(map(str, self.nodes)))
        return f"{self.verb}: {about}"


@dataclass
class Scenario:
    """The steps of a file. `handles` belong to the faults added so far."""

    steps: list[Step]
    handles: list[FaultHandle] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path | str) -> Scenario:
        """Return the scenario of a file, checked. Raises FaultError, OSError."""
        try:
            text = Path(path).read_text("utf-8")
        except UnicodeDecodeError as error:
            raise FaultError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
        return cls.parse(_read(text))

    @classmethod
    def parse(cls, values: object) -> Scenario:
        """Return the scenario that values of YAML define. Raises FaultError, which names the step."""
        if isinstance(values, dict) and set(values) == {"faults"}:
            values = values["faults"]
        if not isinstance(values, list):
            raise FaultError("a scenario must be a list of steps (or `faults:` with such a list)")
        steps = []
        for number, value in enumerate(values, 1):
            try:
                steps.append(_step(value))
            except FaultError as error:
                raise FaultError(f"step {number}: {error}") from None
        return cls(steps)

    def run(self, faults: Faults, report: Report = lambda _line: None) -> list[FaultHandle]:
        """Take the steps in order, and call `report` with a line for each. Return the handles of the added faults.

        If a step fails, the faults of earlier steps are removed. Raises FaultError, ClusterError.
        """
        try:
            for step in self.steps:
                report(str(step))
                self._take(step, faults)
        except BaseException:
            self.remove()
            raise
        return self.handles

    def remove(self) -> None:
        """Remove every fault that the scenario added."""
        for handle in self.handles:
            handle.remove()

    def _take(self, step: Step, faults: Faults) -> None:
        if step.fault is not None:
            self.handles.append(faults.add(step.fault))
        elif step.verb == WAIT:
            _wait(step.wait_ms)
        elif step.verb == RECORD:
            if step.is_on:
                faults.recorder.start()
            else:
                faults.recorder.stop()
        for node_id in step.nodes:
            if step.verb == HEAL:
                faults.node(node_id).heal()
            else:
                faults.act(step.verb, node_id)


def _read(text: str) -> object:
    """Return the values of a YAML text; JSON is a part of YAML."""
    try:
        import yaml  # Why here: the import takes time, and only scenarios need it
    except ImportError:
        return _read_json(text)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FaultError(f"invalid YAML: {' '.join(str(error).split())}") from None


def _read_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise FaultError("invalid JSON; to read YAML, install PyYAML (pip install pyyaml)") from None


def _step(value: object) -> Step:
    if not isinstance(value, dict):
        raise FaultError(f"a step must be an object with keys and values, not {value!r}")
    verbs = [key for key in value if key in NODE_STEPS or key in (WAIT, RECORD)]
    if not verbs:
        return Step("fault", Fault.parse(value))
    if len(value) > 1:
        raise FaultError(f"a step with {verbs[0]} can have no other key")
    (verb,), (about,) = verbs, value.values()
    if verb == WAIT:
        return Step(verb, wait_ms=_number(verb, about, MS_MAX))
    if verb == RECORD:
        if not isinstance(about, bool):
            raise FaultError(f"record must be true or false, not {about!r}")
        return Step(verb, is_on=about)
    return Step(verb, nodes=tuple(CHECKS["node"](verb, one) for one in (about if isinstance(about, list) else [about])))


def _number(key: str, value: object, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise FaultError(f"{key} must be a whole number between 0 and {high}, not {value!r}")
    return value


def _wait(wait_ms: int) -> None:
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + wait_ms
    while (left_ms := until_ms - clock.monotonic_ms()) > 0:
        select.select([], [], [], left_ms / 1000)
