"""Which failed tests run once more: those with real processes and clients in which a wait ran out.

Rules
1. Only tests of FOLDERS. Tests within one process are not among them: there, our own code hangs if a wait runs out.
   Neither are tests that prove that nothing is lost (`crash`, `stress`, ...): there, a lost record is seen as a wait.
2. Every failure of the test, also of its fixtures, must be one of TIMEOUTS. A wrong value is final, also after a wait
   has run out. So is the end of a process of pytest.
3. Once. After MAX reruns in a run of pytest the next failure is final: a wait that runs out often is a bug.
4. Reruns are reported with their failures, at the end of the run.

The rerun itself is pytest-rerunfailures'. As Apache Kafka's build does (testRetry of Gradle), but for less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

#: Folders below tests/.
FOLDERS: Final = (
    "barnabas/cli",
    "barnabas/faults",
    "clients",
    "compare",
    "dashboards",
    "docs",
    "examples",
    "faults_in_languages",
    "live_page",
)
MAX: Final = 3

#: An exception's type and text: `eventually`, librdkafka, kafka-python, futures and sockets, programs.
TIMEOUTS: Final = (
    r"^WaitTimeoutError: ",
    r"^KafkaException: KafkaError\{code=_TIMED_OUT,",
    r"^KafkaTimeoutError: ",
    r"^TimeoutError: ",
    r"^TimeoutExpired: ",
)
_OTHERS: Final = f"^(?!{'|'.join(each.removeprefix('^') for each in TIMEOUTS)})"
_PLUGIN: Final = "rerunfailures"
_TESTS: Final = "tests"


def configure(config: pytest.Config) -> None:
    """Bound the reruns of the whole run, and report them with their failures (rules 3 and 4)."""
    if config.pluginmanager.hasplugin(_PLUGIN):
        config.option.max_suite_reruns = MAX
        config.option.rerun_show_tracebacks = True


def mark(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that may run once more (rules 1 and 2)."""
    if not config.pluginmanager.hasplugin(_PLUGIN):
        return
    # Why both: `only_rerun` is content with an exception that the wrong value came after, `rerun_except` is not.
    again = pytest.mark.flaky(reruns=1, only_rerun=list(TIMEOUTS), rerun_except=[_OTHERS])
    for item in items:
        if may_run_again(Path(item.nodeid.partition("::")[0])):
            item.add_marker(again)


def may_run_again(path: Path) -> bool:
    """Whether a test file, below the root, has tests of real processes and clients (rule 1)."""
    return any(path.is_relative_to(Path(_TESTS, folder)) for folder in FOLDERS)


def end_of_worker(config: Any, test: str) -> None:
    """Do not let the plugin run a test again at which a process of pytest ended (rule 2)."""
    if config.pluginmanager.hasplugin(_PLUGIN):
        config.failures_db.set_test_reruns(test, 0)
