"""The compose clusters that these tests share. If one cannot start, they fail with the reason and are never skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.docker import docker_engine, images
from tests.support.docker.compose_cluster import NODES, SECURE, ComposeCluster, compose_file
from tests.support.docker.docker_engine import Engine, EngineError

_notes: list[str] = []


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """A Docker engine."""
    try:
        with docker_engine.engine() as found:
            _notes.append("engine: started for this run" if found.is_ours else "engine: the one that was running")
            yield found
    except EngineError as error:
        pytest.fail(f"make compose-test needs a Docker engine: {error}", pytrace=False)


@pytest.fixture(scope="session")
def services(engine: Engine) -> list[str]:
    """The services whose images are there."""
    try:
        return build(ComposeCluster(engine))
    except EngineError as error:
        pytest.fail(f"make compose-test needs the images of docker-compose.yml: {error}", pytrace=False)


@pytest.fixture(scope="session")
def compose(engine: Engine, services: list[str]) -> Iterator[ComposeCluster]:
    """The cluster of docker-compose.yml, up and healthy. Each test leaves it in this state."""
    cluster = ComposeCluster(engine)
    try:
        cluster.up(services)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="session")
def secure(engine: Engine, services: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeCluster]:
    """The same with docker-compose.secure.yml; its directory has the settings of users in `clients`."""
    cluster = ComposeCluster(engine, SECURE, tmp_path_factory.mktemp("secure"))
    try:
        cluster.up(services)
        engine.docker("cp", f"{cluster.container('users')}:/secrets/users/.", str(cluster.directory / "clients"))
        yield cluster
    finally:
        cluster.down()


def build(cluster: ComposeCluster) -> list[str]:
    """Build or pull the images and return the services that can be started."""
    engine = cluster.engine
    names = {service: compose_file()["services"][service]["image"] for service in ("prometheus", "grafana")}
    if not engine.is_ours or images.pull(engine, images.PYTHON_IMAGE):
        for image in names.values():
            if not images.pull(engine, image):
                raise EngineError(f"{image} cannot be pulled")
        cluster.build({})
        return [*NODES, *names]
    _notes.append("no image registry answers: Python's and Prometheus's images are stand-ins made of Debian packages,")
    _notes.append("Grafana is not started (its files are held to its library and its queries to Prometheus)")
    images.make_python_image(engine)
    images.make_prometheus_image(engine, names["prometheus"])
    with images.wheels_served() as settings:
        cluster.build(settings)
    return [*NODES, "prometheus"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which parts were real and which were replaced."""
    for note in _notes:
        terminalreporter.write_line(f"compose: {note}")
