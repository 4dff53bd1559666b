"""The pytest plugin: fixtures `barnabas_cluster`, `barnabas_topic` and `simulated_cluster`, their markers and options.

pytest loads it in every run where Barnabas is installed, so it imports only pytest until a test uses one of the
fixtures. Clusters live until the session ends; all tests with equal settings share one. Each worker of xdist is a
session. The report of a failed test contains the processes' output during the test.

A test that uses `simulated_cluster` does not run in this process. An interpreter with the simulated machine runs it, by
a pytest of its own, which loads this plugin too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

if TYPE_CHECKING:
    from barnabas.testing.running import Cluster, Settings
    from barnabas.testing.simulation.cluster import SimulatedCluster
    from barnabas.testing.simulation.runner import Runner

ReportHook: TypeAlias = Generator[None, pytest.TestReport, pytest.TestReport]

CLUSTER_MARKER = "barnabas"
TOPIC_MARKER = "barnabas_topic"
SIMULATION_MARKER = "simulation"
SIMULATED = "simulated_cluster"
IN_CHILD = "barnabas-simulation-child"  # the plugin of in_child.py
MARKERS = (
    f"{SIMULATION_MARKER}(brokers=3, seeds=1, config={{}}, limit=86400, controllers=1): the cluster of {SIMULATED}; "
    "the test runs once for each seed, and for at most `limit` seconds of virtual time",
    f"{CLUSTER_MARKER}(brokers=1, config={{}}, fresh=False, security=None, users={{}}, acls=[]): the cluster that this "
    "test needs; `fresh`: one that no other test has used; `security`: SSL, SASL_SSL or SASL_PLAINTEXT, with `users` "
    "(passwords by name) and `acls` (arguments of `barnabas acl add`)",
    f"{TOPIC_MARKER}(partitions=1, replication_factor=None, config={{}}): properties of barnabas_topic",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("barnabas")
    group.addoption(
        "--simulation-seed", type=int, default=1, metavar="N", help="first seed of tests with simulated_cluster"
    )
    group.addoption(
        "--simulation-seeds", type=int, default=0, metavar="N", help="so many seeds of each test, whatever it asks for"
    )
    parser.addini("barnabas_brokers", "brokers of the barnabas_cluster fixture (default 1)", default="1")
    parser.addini("barnabas_config", "key=value lines: server properties of its processes", type="linelist")
    parser.addini("barnabas_port", "port of broker 0 (default 0: free ports, as parallel runs need)", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


_RUNNER: pytest.StashKey[Runner] = pytest.StashKey()


class Clusters:
    """The clusters of a session, by their settings; each starts when a test first needs it."""

    def __init__(self, ini: Settings) -> None:
        self.ini = ini
        self._running: dict[object, Cluster] = {}

    def get(self, request: ClusterRequest) -> Cluster:
        """The cluster for a test, started if there is none with its settings. Raises StartError."""
        from barnabas.testing.running import Cluster

        key = request if request.fresh else request.settings(self.ini)
        if key not in self._running:
            self._running[key] = Cluster(request.settings(self.ini))
        return self._running[key]

    def end(self, request: ClusterRequest) -> None:
        """End a fresh cluster, which no other test uses."""
        if request.fresh:
            self._running.pop(request).close()

    def close(self) -> None:
        """End all clusters."""
        while self._running:
            self._running.popitem()[1].close()


class ClusterRequest:
    """The arguments of a marker. Equal only to itself, since a `fresh` cluster is for one test."""

    def __init__(
        self,
        brokers: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        fresh: bool = False,
        security: str | None = None,
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] = (),
    ) -> None:
        self.security = (security or "").upper()
        self.users = dict(users or {})
        self.acls = tuple(acls)
        if (self.users or self.acls) and not self.security:
            raise TypeError("users and acls need security: SSL, SASL_SSL or SASL_PLAINTEXT")
        self.brokers = brokers
        self.config = dict(config or {})
        self.fresh = fresh

    def settings(self, ini: Settings) -> Settings:
        """The settings, with defaults from the ini file."""
        from barnabas.testing.running import Settings

        brokers = ini.brokers if self.brokers is None else self.brokers
        port = 0 if self.fresh or self.brokers or self.config or self.security else ini.port
        config = {**dict(ini.config), **self.config}
        return Settings.of(brokers, config, port, security=self.security, users=self.users, acls=self.acls)

    def __str__(self) -> str:
        given = [f"brokers={self.brokers}"] if self.brokers is not None else []
        given += [f"{key}={value}" for key, value in self.config.items()]
        given += [self.security] if self.security else []
        given += [f"users={'+'.join(sorted(self.users))}"] if self.users else []
        given += [f"acls={'+'.join(self.acls)}"] if self.acls else []
        return ",".join(given + ["fresh"] * self.fresh) or "default"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Pass a marker's arguments to the session's fixture as its parameter, so that pytest groups equal ones."""
    if SIMULATED in metafunc.fixturenames:
        _generate_seeds(metafunc)
    marker = metafunc.definition.get_closest_marker(CLUSTER_MARKER)
    if marker is None or "barnabas_cluster" not in metafunc.fixturenames:
        return
    try:
        wanted = ClusterRequest(*marker.args, **marker.kwargs)
    except TypeError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: @pytest.mark.{CLUSTER_MARKER}: {error}") from error
    scope: Literal["function", "session"] = "function" if wanted.fresh else "session"
    metafunc.parametrize("barnabas_cluster", [wanted], indirect=True, ids=[str(wanted)], scope=scope)


@pytest.fixture(scope="session")
def _barnabas_clusters(pytestconfig: pytest.Config) -> Iterator[Clusters]:
    clusters = Clusters(_ini_settings(pytestconfig))
    try:
        yield clusters
    finally:
        clusters.close()


def _ini_settings(config: pytest.Config) -> Settings:
    from barnabas.testing.running import Settings

    entries: dict[str, object] = {}
    for line in config.getini("barnabas_config"):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"barnabas_config: '{line}' is not of the form key=value")
        entries[key.strip()] = value.strip()
    try:
        return Settings.of(int(config.getini("barnabas_brokers")), entries, int(config.getini("barnabas_port")))
    except ValueError as error:
        raise pytest.UsageError(f"barnabas_brokers, barnabas_port: {error}") from error


@pytest.fixture(scope="session")
def barnabas_cluster(request: pytest.FixtureRequest, _barnabas_clusters: Clusters) -> Iterator[Cluster]:
    """A running Kafka cluster (`barnabas.testing.Cluster`): `.bootstrap` for clients, and methods for tests.

    The ini options describe the session's cluster; a test with `@pytest.mark.barnabas(...)` gets another.
    """
    from barnabas.testing.running import StartError

    wanted: ClusterRequest = getattr(request, "param", None) or ClusterRequest()
    try:
        found = _barnabas_clusters.get(wanted)
    except StartError as error:
        pytest.fail(f"the cluster could not be started:\n{error}", pytrace=False)
    yield found
    _barnabas_clusters.end(wanted)


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest, barnabas_cluster: Cluster) -> str:
    """The name of a topic that no other test uses; `@pytest.mark.barnabas_topic(partitions=3)` sets its properties."""
    marker = request.node.get_closest_marker(TOPIC_MARKER)
    properties: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    return barnabas_cluster.create_topic(request.node.name, **properties)


@dataclass(frozen=True)
class Simulation:
    """The arguments of the marker `simulation`."""

    brokers: int = 3
    seeds: int = 1
    config: Mapping[str, object] = field(default_factory=dict)
    limit: float = 86_400.0
    controllers: int = 1

    def __post_init__(self) -> None:
        for name in ("brokers", "seeds", "controllers"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise TypeError(f"{name}={value!r} is no positive number")
        if not isinstance(self.config, Mapping):
            raise TypeError(f"config={self.config!r} is no mapping of settings to values")
        if not isinstance(self.limit, int | float) or self.limit <= 0:
            raise TypeError(f"limit={self.limit!r} is no positive number of seconds")

    @classmethod
    def of(cls, item: pytest.Item | pytest.Function) -> Simulation:
        """The arguments for a test. Raises UsageError."""
        marker = item.get_closest_marker(SIMULATION_MARKER)
        try:
            return cls() if marker is None else cls(*marker.args, **marker.kwargs)
        except TypeError as error:
            raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{SIMULATION_MARKER}: {error}") from error


def _generate_seeds(metafunc: pytest.Metafunc) -> None:
    wanted = Simulation.of(metafunc.definition)
    option = metafunc.config.option
    if option.simulation_seeds < 0:
        raise pytest.UsageError(f"--simulation-seeds {option.simulation_seeds}: no positive number")
    seeds = range(option.simulation_seed, option.simulation_seed + (option.simulation_seeds or wanted.seeds))
    metafunc.parametrize(SIMULATED, list(seeds), indirect=True, ids=[f"seed{seed}" for seed in seeds])


@pytest.fixture
def simulated_cluster(request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    """A Kafka cluster in virtual time (`barnabas.testing.simulation.cluster.SimulatedCluster`), decided by a seed.

    The whole test runs in an interpreter of its own, where time, threads, sockets and random numbers are simulated.
    `@pytest.mark.simulation(brokers=3, seeds=20, config={...})` sets its properties.
    """
    child: Any = request.config.pluginmanager.get_plugin(IN_CHILD)
    if child is None:
        pytest.fail(f"{SIMULATED} is requested while the test runs: make it an argument of the test", pytrace=False)
    wanted = Simulation.of(request.node)
    yield from child.make_cluster(wanted.brokers, dict(wanted.config), wanted.controllers)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test with a simulated cluster in an interpreter of its own."""
    config = item.config
    if SIMULATED not in getattr(item, "fixturenames", ()) or config.pluginmanager.has_plugin(IN_CHILD):
        return None
    runner = config.stash.get(_RUNNER, None)
    if runner is None:
        from barnabas.testing.simulation.runner import Runner

        runner = config.stash[_RUNNER] = Runner(config)
        config.add_cleanup(runner.close)
    seed = item.callspec.params[SIMULATED]  # type: ignore[attr-defined]
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runner.run(item, seed, config.option.simulation_seed, Simulation.of(item).limit):
        item.ihook.pytest_runtest_logreport(report=report)
    # Why: fixtures of wider scopes that the tests before have set up, and the next test does not use, must end.
    item.session._setupstate.teardown_exact(nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> ReportHook:
    """Add the processes' output during a failed test to its report."""
    report = yield
    for cluster in _clusters_of(item):
        if report.failed:
            complaints = cluster.complaints()
            report.sections += [("barnabas", complaints)] if complaints else []
            report.sections += [(f"log of {name}", text) for name, text in cluster.logs().items()]
        if report.failed or call.when == "teardown":
            cluster.forget_logs()
    return report


def _clusters_of(item: pytest.Item) -> list[Cluster]:
    """The clusters in a test's fixtures, each once."""
    import sys

    if "barnabas.testing.running" not in sys.modules:
        return []
    from barnabas.testing.running import Cluster

    found = {id(value): value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Cluster)}
    return list(found.values())
