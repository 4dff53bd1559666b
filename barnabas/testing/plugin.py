"""The pytest plugin: fixtures `barnabas_cluster` and `barnabas_topic`, their markers and ini options.

pytest loads it in every run where Barnabas is installed, so it imports only pytest until a test uses one of the
fixtures. Clusters live until the session ends; all tests with equal settings share one. Each worker of xdist is a
session. The report of a failed test contains the processes' output during the test.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

if TYPE_CHECKING:
    from barnabas.testing.running import Cluster, Settings

ReportHook: TypeAlias = Generator[None, pytest.TestReport, pytest.TestReport]

CLUSTER_MARKER = "barnabas"
TOPIC_MARKER = "barnabas_topic"
MARKERS = (
    f"{CLUSTER_MARKER}(brokers=1, config={{}}, fresh=False, security=None, users={{}}, acls=[]): the cluster that this "
    "test needs; `fresh`: one that no other test has used; `security`: SSL, SASL_SSL or SASL_PLAINTEXT, with `users` "
    "(passwords by name) and `acls` (arguments of `barnabas acl add`)",
    f"{TOPIC_MARKER}(partitions=1, replication_factor=None, config={{}}): properties of barnabas_topic",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini options."""
    parser.addini("barnabas_brokers", "brokers of the barnabas_cluster fixture (default 1)", default="1")
    parser.addini("barnabas_config", "key=value lines: server properties of its processes", type="linelist")
    parser.addini("barnabas_port", "port of broker 0 (default 0: free ports, as parallel runs need)", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


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
