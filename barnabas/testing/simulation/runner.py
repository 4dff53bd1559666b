"""Runs simulated tests in an interpreter of their own (nursery.py), and returns their reports.

It is a part of the pytest session that the user started, and imports nothing of the simulation.

Threads: the session's main thread.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.common.clock import SystemClock
from barnabas.common.processes.interpreter import callers_command
from barnabas.testing.simulation.machine import interpreter

NEEDED: Final = "greenlet"
_ROOT: Final = str(Path(__file__).resolve().parents[3])
_START: Final = """\
import json, sys
sys.path.insert(0, json.loads(sys.argv[-1])["root"])
from barnabas.testing.simulation.nursery import main
main()
"""
#: Options that belong to the session as a whole: what it runs, where it writes.
_OF_THE_SESSION: Final = frozenset(
    {
        *("file_or_dir", "keyword", "markexpr", "deselect", "ignore", "ignore_glob", "collectonly", "maxfail", "lf"),
        *("failedfirst", "newfirst", "stepwise", "stepwise_skip", "basetemp", "plugins", "usepdb", "usepdb_cls"),
        *("trace", "xmlpath", "htmlpath", "debug", "pastebin", "durations", "setupplan", "setuponly", "setupshow"),
        *("numprocesses", "maxprocesses", "dist", "tx", "px", "distload", "looponfail", "simulation_seeds"),
    }
)


class Runner:
    """Runs the simulated tests of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._clock = SystemClock()
        self._nursery: subprocess.Popen[str] | None = None
        self._answers: Any = None

    def run(self, item: pytest.Item, seed: int, first_seed: int, limit_s: float) -> Iterator[pytest.TestReport]:
        """Run a test, and return its reports; one that failed if it ended without any."""
        if importlib.util.find_spec(NEEDED) is None:
            yield self._failed(item, "simulated_cluster needs greenlet: pip install 'barnabas[simulation]'")
            return
        began_ns = self._clock.monotonic_ns()
        errors: list[str] = []
        is_complete = False
        for answer in self._ask(self._request(item, seed, first_seed, limit_s)):
            if "report" in answer:
                report = self._config.hook.pytest_report_from_serializable(config=self._config, data=answer["report"])
                ended_ns = self._clock.monotonic_ns()  # a simulated duration would not be comparable with others
                report.duration, began_ns = (ended_ns - began_ns) / 1e9, ended_ns
                is_complete = is_complete or report.when == "teardown"
                yield _with_tuples(report)
            elif "error" in answer:
                errors.append(answer["error"])
            elif not is_complete and not errors:
                errors.append(f"the interpreter of the simulation ended with {answer['end']}; its output is above")
        if errors:
            yield self._failed(item, "\n".join(errors))

    def close(self) -> None:
        """End the interpreter of the simulation, and what it has forked."""
        if self._nursery is not None:
            os.killpg(self._nursery.pid, signal.SIGKILL)
            self._nursery.communicate()
            self._answers.close()
            self._nursery = None

    def _ask(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request; return the answers, up to the one that has an `end`."""
        nursery = self._started()
        assert nursery.stdin is not None
        try:
            nursery.stdin.write(json.dumps(request) + "\n")
            nursery.stdin.flush()
        except BrokenPipeError:
            pass  # its end is the answer
        for line in self._answers:
            answer: dict[str, Any] = json.loads(line)
            yield answer
            if "end" in answer:
                return
        self._answers.close()
        code = nursery.wait()
        self._nursery = None
        yield {"end": code}

    def _started(self) -> subprocess.Popen[str]:
        if self._nursery is None:
            reading, writing = os.pipe()
            arguments = json.dumps({"root": _ROOT, "path": sys.path, "answers": writing, "parent": os.getpid()})
            self._nursery = subprocess.Popen(
                [*callers_command(_START), arguments],
                stdin=subprocess.PIPE,
                text=True,
                pass_fds=[writing],
                env={**os.environ, **interpreter.ENVIRONMENT},
                preexec_fn=interpreter.fix_addresses,
                start_new_session=True,  # `close` ends the group
            )
            os.close(writing)
            self._answers = os.fdopen(reading)
        return self._nursery

    def _request(self, item: pytest.Item, seed: int, first_seed: int, limit_s: float) -> dict[str, Any]:
        config = self._config
        options = {
            name: value
            for name, value in vars(config.option).items()
            if name not in _OF_THE_SESSION and _is_plain(value)
        }
        path, _, inside = item.nodeid.partition("::")
        factory: Any = getattr(config, "_tmp_path_factory", None)
        arguments = [f"{config.rootpath / path}::{inside}", f"--rootdir={config.rootpath}"]
        arguments += ["-c", str(config.inipath)] if config.inipath is not None else []
        for name in ("no:terminal", "no:xdist", "no:cacheprovider", "no:faulthandler"):
            arguments += ["-p", name]
        for name in config.option.plugins:
            arguments += ["-p", name]
        for setting in config.option.override_ini or ():
            arguments += ["-o", setting]
        arguments += [f"--capture={config.option.capture}", f"--import-mode={config.option.importmode}"]
        arguments += [f"--simulation-seed={first_seed}"]
        if config.option.simulation_seeds:
            arguments += [f"--simulation-seeds={config.option.simulation_seeds}"]
        if factory is not None:
            arguments += [f"--basetemp={factory.mktemp('simulated')}"]
        return {
            "arguments": arguments,
            "options": options,
            "seed": seed,
            "first_seed": first_seed,
            "limit_s": limit_s,
            "directory": str(config.invocation_params.dir),
        }

    def _failed(self, item: pytest.Item, text: str) -> pytest.TestReport:
        return pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords=dict.fromkeys(item.keywords, 1),
            outcome="failed",
            longrepr=text,
            when="call",
        )


def _with_tuples(report: Any) -> Any:
    """Make tuples of what JSON has made lists, as plugins expect them."""
    report.location = tuple(report.location)
    report.sections = [(title, text) for title, text in report.sections]
    report.user_properties = [(name, value) for name, value in report.user_properties]
    if isinstance(report.longrepr, list):  # where and why a test was skipped
        path, line, reason = report.longrepr
        report.longrepr = (path, line, reason)
    return report


def _is_plain(value: object) -> bool:
    """Whether a value stays what it is when it is sent as JSON."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))
