"""Runs lives one after the other, each in a fork of an interpreter that has imported everything.

Threads: none.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import TYPE_CHECKING, NamedTuple

from barnabas.testing.simulation.fault_decisions import Decision
from tests.simulation.shrinking.life import Life

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.scheduler import Scheduler


class Trial(NamedTuple):
    """What came out of a life, which has its decisions now."""

    life: Life
    problems: list[str]
    told: list[str]
    digest: str


class Trials:
    """Runs lives on a machine that is installed."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def run(self, life: Life) -> Trial:
        """Run a life. A run that ends with an exception has that as its problem."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with os.fdopen(writer, "w") as output:
                    json.dump(self._run_here(life), output)
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as found:
            text = found.read()
        os.waitpid(child, 0)
        problems, told, decisions, digest = json.loads(text) if text else (["the run ended without a word"], [], [], "")
        return Trial(life._replace(decisions=[Decision(*each) for each in decisions]), problems, told, digest)

    def _run_here(self, life: Life) -> tuple[list[str], list[str], list[Decision], str]:
        from barnabas.testing.simulation.logs import keep_logs
        from barnabas.testing.simulation.machine import patches
        from barnabas.testing.simulation.machine.digest import Digest
        from tests.simulation.cluster.run import Run
        from tests.simulation.load.story import Story

        try:
            keep_logs(self._scheduler, None, "")
            network = patches.begin(self._scheduler, life.seed, Digest(None), life.order)
            outcome = Run(self._scheduler, network, Story(**life.story), life.decisions).run()
        except Exception:
            return [traceback.format_exc()], [], list(life.decisions or ()), ""
        return outcome.problems, outcome.told, outcome.decisions, outcome.digest
