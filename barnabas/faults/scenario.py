"""Scenarios: faults and node actions in a YAML (or JSON) file, one after another.

    - {api: Produce, topic: orders, error: NOT_LEADER_OR_FOLLOWER, times: 3}
    - wait_ms: 2000
    - kill: 1
    - wait_ms: 5000
    - start: 1
    - {node: 2, disk_delay_ms: 50, operations: [fsync]}
    - heal: 2

A step is a fault (any keys of docs/faults.md), or one of `kill`, `stop`, `start`, `pause`, `resume`, `heal` with the id
of a node (or a list of them), `wait_ms`, `record: true` or `false`. The whole file is checked before anything happens.
"""

from __future__ import annotations

import json
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.common.clock import SystemClock
from barnabas.faults.client import FaultHandle, Faults
from barnabas.faults.definition import CHECKS, MS_MAX, Fault, FaultError
from barnabas.faults.nodes import PROCESS_ACTIONS

HEAL: Final = "heal"
WAIT: Final = "wait_ms"
RECORD: Final = "record"
NODE_STEPS: Final = (*PROCESS_ACTIONS, HEAL)

Tell = Callable[[str], object]


@dataclass(frozen=True)
class Step:
    """One step: a fault, or a verb and what it is about."""

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
    """The steps of a file. `handles` are of the faults that it has added so far."""

    steps: list[Step]
    handles: list[FaultHandle] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path | str) -> Scenario:
        """Read and check a file; raises FaultError, OSError."""
        return cls.parse(_read(Path(path).read_text()))

    @classmethod
    def parse(cls, values: Any) -> Scenario:
        """Check what a file holds; raises FaultError, which names the step."""
        if isinstance(values, dict) and set(values) == {"faults"}:
            values = values["faults"]
        if not isinstance(values, list):
            raise FaultError("a scenario is a list of steps (or `faults:` and such a list)")
        steps = []
        for number, value in enumerate(values, 1):
            try:
                steps.append(_step(value))
            except FaultError as error:
                raise FaultError(f"step {number}: {error}") from None
        return cls(steps)

    def run(self, faults: Faults, tell: Tell = lambda _line: None) -> list[FaultHandle]:
        """Take the steps, in order; `tell` hears of each. Returns the faults that it added (also as `handles`).

        If a step fails, the faults of those before it are removed. Raises FaultError, ClusterError.
        """
        try:
            for step in self.steps:
                tell(str(step))
                self._take(step, faults)
        except BaseException:
            self.remove()
            raise
        return self.handles

    def remove(self) -> None:
        """Remove every fault that the scenario has added."""
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


def _read(text: str) -> Any:
    """What the text holds, as YAML, of which JSON is a part."""
    try:
        import yaml  # Why here: it takes time, and nobody else needs it
    except ImportError:
        return _read_json(text)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FaultError(f"this is no YAML: {' '.join(str(error).split())}") from None


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise FaultError("this is no JSON; to read YAML, install PyYAML (pip install 'barnabas[test]')") from None


def _step(value: Any) -> Step:
    if not isinstance(value, dict):
        raise FaultError(f"a step is keys and values, not {value!r}")
    verbs = [key for key in value if key in NODE_STEPS or key in (WAIT, RECORD)]
    if not verbs:
        return Step("fault", Fault.parse(value))
    if len(value) > 1:
        raise FaultError(f"a step does one thing: {verbs[0]} stands alone")
    (verb,), (about,) = verbs, value.values()
    if verb == WAIT:
        return Step(verb, wait_ms=_number(verb, about, MS_MAX))
    if verb == RECORD:
        if not isinstance(about, bool):
            raise FaultError(f"record is true or false, not {about!r}")
        return Step(verb, is_on=about)
    return Step(verb, nodes=tuple(CHECKS["node"](verb, one) for one in (about if isinstance(about, list) else [about])))


def _number(key: str, value: Any, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        raise FaultError(f"{key} must be a whole number between 0 and {high}, not {value!r}")
    return value


def _wait(wait_ms: int) -> None:
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + wait_ms
    while (left_ms := until_ms - clock.monotonic_ms()) > 0:
        select.select([], [], [], left_ms / 1000)
