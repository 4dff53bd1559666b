"""pytest's side in the interpreter of a simulated test: makes the cluster, and sends the reports.

Threads: the test's tasks.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from barnabas import __version__
from barnabas.testing.simulation.cluster import SimulatedCluster
from barnabas.testing.simulation.machine.network.links import Network
from barnabas.testing.simulation.machine.scheduler import Scheduler

NAME = "barnabas-simulation-child"


class InChild:
    """A plugin of the pytest that runs one simulated test."""

    def __init__(
        self, scheduler: Scheduler, network: Network, request: dict[str, Any], send: Callable[[dict[str, Any]], None]
    ) -> None:
        self.__name__ = NAME  # by which pytest registers it
        self._scheduler = scheduler
        self._network = network
        self._request = request
        self._send = send
        self._cluster: SimulatedCluster | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Take the options of the session that started this one; first, since other plugins read them."""
        self._config = config
        vars(config.option).update(self._request["options"])

    def make_cluster(self, brokers: int, config: dict[str, object], controllers: int = 1) -> Iterator[SimulatedCluster]:
        """Start a cluster; afterwards, fail for programs and nodes that ended with an error."""
        try:
            cluster = self._cluster = SimulatedCluster(self._scheduler, self._network, brokers, config, controllers)
            cluster.start()
        except ValueError as error:
            pytest.fail(f"the simulated cluster could not be started: {error}", pytrace=False)
        yield cluster
        problems = cluster.nodes.problems()
        for each in cluster.applications:
            if each.error is not None:
                problems.append(f"{each.name} ended with:\n{''.join(traceback.format_exception(each.error))}")
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the story of the simulation to the report of a test that failed, and its digest to every one."""
        if call.when == "call":
            item.user_properties.append(("simulation_digest", self._scheduler.digest.hex()))
        report = yield
        if report.failed:
            seed = self._request["seed"]
            again = f"pytest {shlex.quote(item.nodeid)} --simulation-seed {seed} --simulation-seeds 1"
            story = self._cluster.story if self._cluster is not None else []
            failures = self._scheduler.failures
            lines = [f"seed {seed} of Barnabas {__version__}, again with: {again}"]
            lines += [f"failed at {self._scheduler.now_ns / 1e9:.6f} s of virtual time", *story, *failures]
            report.sections.append(("simulation", "\n".join(lines)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        config = self._config
        self._send({"report": config.hook.pytest_report_to_serializable(config=config, report=report)})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Send why a module could not be collected."""
        if report.failed:
            self._send({"error": f"in the simulation, collecting {report.nodeid} failed:\n{report.longreprtext}"})
