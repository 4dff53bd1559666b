"""The interpreter of simulated tests: it replaces the machine, imports the servers, and forks for each test.

`runner.py` starts it and sends a line of JSON for each test. The fork runs pytest for that one test as a simulated
process, so the test's module, its fixtures and the libraries that they import meet the simulated machine.

Rules
1. The nursery itself imports nothing of the test's project, and runs no task. So each test begins in the same state.
2. A fork ends by `os._exit`: tasks that are left would otherwise run their `finally` blocks.

Threads: one.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any, TextIO

from barnabas.testing.simulation.machine import interpreter, patches
from barnabas.testing.simulation.machine.digest import Digest
from barnabas.testing.simulation.machine.scheduler import NS_PER_S, Scheduler, SimulationError


def main() -> None:
    """Serve requests from the standard input until it ends; answers go to the descriptor in the last argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner ends this process
    scheduler = Scheduler(0)
    patches.install(scheduler)
    # Why here: they import the code under test, and libraries, which must find the simulated machine.
    import barnabas.testing.simulation.cluster
    import barnabas.testing.simulation.in_child  # noqa: F401

    arguments = json.loads(sys.argv[-1])
    interpreter.end_with_parent(arguments["parent"])
    nursery = os.getpid()
    sys.path[:] = arguments["path"]
    with os.fdopen(arguments["answers"], "w") as answers:
        for line in sys.stdin:
            request = json.loads(line)
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                interpreter.end_with_parent(nursery)
                _run_and_exit(scheduler, request, answers)
            _, status = os.waitpid(child, 0)
            send(answers, {"end": os.waitstatus_to_exitcode(status)})


def send(answers: TextIO, answer: dict[str, Any]) -> None:
    """Send an answer to the runner."""
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _run_and_exit(scheduler: Scheduler, request: dict[str, Any], answers: TextIO) -> None:
    code = 1
    try:
        code = _run(scheduler, request, answers)
    except SimulationError as error:
        send(answers, {"error": f"the simulation of seed {request['seed']} ended: {error}"})
    except BaseException as error:
        import traceback

        send(answers, {"error": "".join(traceback.format_exception(error))})
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(scheduler: Scheduler, request: dict[str, Any], answers: TextIO) -> int:
    import pytest

    from barnabas.testing.simulation.cluster import TEST_ADDRESS
    from barnabas.testing.simulation.in_child import InChild
    from barnabas.testing.simulation.machine.process import Process

    gc.collect()
    gc.freeze()  # the collector then works at the same moments, whatever the nursery did before
    network = patches.begin(scheduler, request["seed"], Digest())
    os.chdir(request["directory"])
    limit_s = request["limit_s"]
    scheduler.call_at(int(limit_s * NS_PER_S), lambda: scheduler.fail(f"{limit_s:g} s of virtual time have passed"))
    plugin = InChild(scheduler, network, request, lambda answer: send(answers, answer))
    codes: list[int] = []
    scheduler.run(
        Process(scheduler, "test", TEST_ADDRESS),
        lambda: codes.append(int(pytest.main(request["arguments"], plugins=[plugin]))),
    )
    return codes[0]
