"""The pytest plugin: fixtures `barnabas_cluster` and `barnabas_topic`, their markers and ini options.

It is loaded with every pytest run where Barnabas is installed, so it imports nothing but pytest until a test asks for
one of the fixtures. Clusters live as long as the session, one for all tests that want the same settings; xdist's
workers are sessions of their own. A test whose report is a failure gets what the processes printed meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pytest

if TYPE_CHECKING:
    from barnabas.testing.running import Cluster, Settings

ReportHook: TypeAlias = Generator[None, pytest.TestReport, pytest.TestReport]

CLUSTER_MARKER = "barnabas"
TOPIC_MARKER = "barnabas_topic"
MARKERS = (
    f"{CLUSTER_MARKER}(brokers=1, config={{}}, fresh=False): the cluster that this test wants; "
    "`fresh`: one that no other test has touched",
    f"{TOPIC_MARKER}(partitions=1, replication_factor=None, config={{}}): what barnabas_topic is to be like",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini options."""
    parser.addini("barnabas_brokers", "brokers of the barnabas_cluster fixture (default 1)", default="1")
    parser.addini("barnabas_config", "key=value lines: server properties of its processes", type="linelist")
    parser.addini("barnabas_port", "port of broker 0 (default 0: free ones, which runs in parallel need)", default="0")


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


class Clusters:
    """The clusters of a session by their settings; each is started when a test first wants it."""

    def __init__(self, ini: Settings) -> None:
        self.ini = ini
        self._running: dict[object, Cluster] = {}

    def get(self, wish: Wish) -> Cluster:
        """The cluster for a test with this wish. Raises StartError."""
        from barnabas.testing.running import Cluster

        key = wish if wish.fresh else wish.settings(self.ini)
        if key not in self._running:
            self._running[key] = Cluster(wish.settings(self.ini))
        return self._running[key]

    def end(self, wish: Wish) -> None:
        """End a cluster that is no other test's."""
        if wish.fresh:
            self._running.pop(wish).close()

    def close(self) -> None:
        """End all."""
        while self._running:
            self._running.popitem()[1].close()


class Wish:
    """What a marker says. Equal only to itself: one that is `fresh` is for one test."""

    def __init__(
        self,
        brokers: int | None = None,
        config: Mapping[str, object] | None = None,
        *,
        fresh: bool = False,
    ) -> None:
        self.brokers = brokers
        self.config = dict(config or {})
        self.fresh = fresh

    def settings(self, ini: Settings) -> Settings:
        """With what the ini file says where the marker says nothing."""
        from barnabas.testing.running import Settings

        brokers = ini.brokers if self.brokers is None else self.brokers
        port = 0 if self.fresh or self.brokers or self.config else ini.port
        return Settings.of(brokers, {**dict(ini.config), **self.config}, port)

    def __str__(self) -> str:
        said = [f"brokers={self.brokers}"] if self.brokers is not None else []
        said += [f"{key}={value}" for key, value in self.config.items()]
        return ",".join(said + ["fresh"] * self.fresh) or "as usual"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hand the marker's wish to the session's fixture, as its parameter: tests with equal wishes stay together."""
    marker = metafunc.definition.get_closest_marker(CLUSTER_MARKER)
    if marker is None or "barnabas_cluster" not in metafunc.fixturenames:
        return
    try:
        wish = Wish(*marker.args, **marker.kwargs)
    except TypeError as error:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: @pytest.mark.{CLUSTER_MARKER}: {error}") from error
    scope: Literal["function", "session"] = "function" if wish.fresh else "session"
    metafunc.parametrize("barnabas_cluster", [wish], indirect=True, ids=[str(wish)], scope=scope)


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
    """A running Kafka cluster: `.bootstrap` for clients, and all that `barnabas.testing.Cluster` has.

    One for the session, as the ini options say; a test with `@pytest.mark.barnabas(...)` has another.
    """
    from barnabas.testing.running import StartError

    wish: Wish = getattr(request, "param", None) or Wish()
    try:
        found = _barnabas_clusters.get(wish)
    except StartError as error:
        pytest.fail(f"the cluster could not be started:\n{error}", pytrace=False)
    yield found
    _barnabas_clusters.end(wish)


@pytest.fixture
def barnabas_topic(request: pytest.FixtureRequest, barnabas_cluster: Cluster) -> str:
    """The name of a topic that no other test uses; `@pytest.mark.barnabas_topic(partitions=3)` says what it is like."""
    marker = request.node.get_closest_marker(TOPIC_MARKER)
    wishes: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    return barnabas_cluster.create_topic(request.node.name, **wishes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> ReportHook:
    """Put what the brokers printed during a test into the report of its failure."""
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
    """The clusters among the values of a test's fixtures, each once."""
    import sys

    if "barnabas.testing.running" not in sys.modules:
        return []
    from barnabas.testing.running import Cluster

    found = {id(value): value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Cluster)}
    return list(found.values())
