"""The class of a drill: an incident, where to look, its repair, and the check that it is repaired."""

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
    """A panel of a Grafana dashboard (dashboards/json), by the titles of both."""

    dashboard: str
    title: str

    def __str__(self) -> str:
        return f"{self.dashboard} → {self.title}"


@dataclass(frozen=True, slots=True)
class Drill:
    """An incident.

    Texts and commands may contain `{name}` of a fact that `stage` noted, `{directory}`, and `{page}` (the address of a
    broker's pages).
    """

    name: str
    title: str
    brokers: int
    symptom: str
    panels: tuple[Panel, ...]
    live: str  # where the live page shows the incident
    explain: tuple[str, ...]  # commands that explain it
    stage: Callable[[Scene], None]  # starts the applications and breaks something; returns once that is visible
    problems: Callable[[Scene], Sequence[str]]  # remaining problems as sentences, from the cluster and the facts only
    repair: tuple[str, ...]  # the commands of one solution
    config: Mapping[str, str] = field(default_factory=dict)
    controllers: int = 1

    def briefing(self, facts: Mapping[str, object]) -> list[str]:
        """The lines that the user reads once the drill is staged."""
        return [
            f"Drill: {self.title}.",
            "",
            *textwrap.wrap(_filled(self.symptom, facts), WIDTH, break_long_words=False, break_on_hyphens=False),
            "",
            "Where to look",
            *(f"  Grafana     {panel}" for panel in self.panels),
            f"  live page   http://{facts['page']}/live",
            f"              {self.live}",
            *(f"  explained   {_filled(command, facts)}" for command in self.explain),
            "",
            "Repair it in another terminal. `barnabas drill check` prints the remaining problems, `barnabas drill",
            f"solution` one solution; docs/drills/{self.name}.md explains it. Ctrl-C gives up.",
        ]

    def commands(self, facts: Mapping[str, object]) -> list[list[str]]:
        """One solution, as the arguments of programs."""
        return [shlex.split(_filled(command, facts)) for command in self.repair]

    def solution(self, facts: Mapping[str, object]) -> list[str]:
        """One solution, as lines to type."""
        return [_filled(command, facts) for command in self.repair]


def _filled(text: str, facts: Mapping[str, object]) -> str:
    return text.format_map(facts)
