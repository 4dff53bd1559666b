"""Which failed tests run once more: those whose outcome also depends on other programs and on this machine's load.

Rules
1. Only tests of PATHS, which start real processes, clients, browsers and JVMs. Tests within one process are not among
   them: there, a failure is our own code's. Neither are tests that prove that nothing is lost (`crash`, `stress`, ...):
   there, a rare failure is what they look for.
2. Once. After MAX reruns in a run of pytest the next failure is final: what fails often is a bug.
3. The end of a process of pytest is final.
4. Reruns are reported with their failures, at the end of the run.

The rerun itself is pytest-rerunfailures'. Apache Kafka's own build does the same for all its tests.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

#: Folders and files below tests/.
PATHS: Final = (
    "barnabas/cli",
    "barnabas/clock",
    "barnabas/cluster",
    "barnabas/drills",
    "barnabas/faults",
    "barnabas/server",
    "barnabas/testing/test_plugin.py",
    "clients",
    "compare",
    "controller/raft/client/test_apache.py",
    "controller/raft/client/test_dynamic.py",
    "dashboards",
    "docs",
    "examples",
    "faults_in_languages",
    "live_page",
    "metrics/test_alike.py",
    "metrics/test_request_log.py",
    "metrics/test_values.py",
)
MAX: Final = 3

_PLUGIN: Final = "rerunfailures"
_TESTS: Final = "tests"


def configure(config: pytest.Config) -> None:
    """Bound the reruns of the whole run, and report them with their failures (rules 2 and 4)."""
    if config.pluginmanager.hasplugin(_PLUGIN):
        config.option.max_suite_reruns = MAX
        config.option.rerun_show_tracebacks = True


def mark(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that may run once more (rule 1)."""
    if not config.pluginmanager.hasplugin(_PLUGIN):
        return
    for item in items:
        if may_run_again(Path(item.nodeid.partition("::")[0])):
            item.add_marker(pytest.mark.flaky(reruns=1))


@cache  # Why: each of 20,000 tests is asked for, of 1,000 files
def may_run_again(path: Path) -> bool:
    """Whether a test file, below the root, has tests of real processes and clients (rule 1)."""
    return any(path.is_relative_to(Path(_TESTS, each)) for each in PATHS)


def end_of_worker(config: Any, test: str) -> None:
    """Do not let the plugin run a test again at which a process of pytest ended (rule 3)."""
    if config.pluginmanager.hasplugin(_PLUGIN):
        config.failures_db.set_test_reruns(test, 0)
