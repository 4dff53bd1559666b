"""What a drill is: an incident, where to look, what repairs it, and how to tell that it is repaired."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.drills.scene import Scene


WIDTH = 100


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a Grafana dashboard (dashboards/json), by their titles."""

    dashboard: str
    title: str

    def __str__(self) -> str:
        return f"{self.dashboard} → {self.title}"


@dataclass(frozen=True, slots=True)
class Drill:
    """An incident. Texts and commands may hold `{name}` of a fact that `stage` noted (and `{directory}`, and `{page}`,
    the address of a broker's pages).

    `stage` starts the applications and breaks something; it returns when that shows. `problems` says in whole sentences
    what is still wrong, nothing once it is repaired; it may look only at the cluster and the facts. `repair` is one way
    out, as commands to be typed.
    """

    name: str
    title: str
    brokers: int
    symptom: str
    panels: tuple[Panel, ...]
    live: str
    explain: tuple[str, ...]
    stage: Callable[[Scene], None]
    problems: Callable[[Scene], Sequence[str]]
    repair: tuple[str, ...]
    config: Mapping[str, str] = field(default_factory=dict)

    def briefing(self, facts: Mapping[str, object]) -> list[str]:
        """What the learner is told at the start, line by line."""
        return [
            f"Drill: {self.title}.",
            "",
            *textwrap.wrap(_filled(self.symptom, facts), WIDTH, break_long_words=False, break_on_hyphens=False),
            "",
            "Where it shows",
            *(f"  Grafana     {panel}" for panel in self.panels),
            f"  live page   http://{facts['page']}/live",
            f"              {self.live}",
            *(f"  in words    {_filled(command, facts)}" for command in self.explain),
            "",
            "Repair it in another terminal. `barnabas drill check` tells what is still wrong, `barnabas drill",
            f"solution` one way out, docs/drills/{self.name}.md why it is one. Ctrl-C gives up.",
        ]

    def commands(self, facts: Mapping[str, object]) -> list[list[str]]:
        """One way out, as arguments of programs."""
        return [shlex.split(_filled(command, facts)) for command in self.repair]

    def solution(self, facts: Mapping[str, object]) -> list[str]:
        """One way out, as lines to be typed."""
        return [_filled(command, facts) for command in self.repair]


def _filled(text: str, facts: Mapping[str, object]) -> str:
    return text.format_map(facts)
