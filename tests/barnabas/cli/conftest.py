"""One real cluster for all tests of commands that need one, and a way to run commands in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.address import VARIABLE
from barnabas.cli.main import run
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually


class Outcome(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The tab-separated lines below the header."""
        return [line.split("\t") for line in self.out.splitlines()[1:]]


Barnabas = Callable[..., Outcome]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """Run `barnabas ARGUMENTS...` in this process."""
    capsys.readouterr()
    code = run(arguments)
    return Outcome(code, *capsys.readouterr())


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """A controller and a broker."""
    with BarnabasCluster(tmp_path_factory.mktemp("commands"), broker_count=1, first_port=0) as running:
        yield running


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Barnabas:
    """Runs `barnabas ARGUMENTS...`."""
    return partial(run_command, capsys)


@pytest.fixture
def bootstrap(cluster: BarnabasCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster's address, which commands use by default."""
    monkeypatch.setenv(VARIABLE, cluster.bootstrap)
    return cluster.bootstrap


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A topic for this test, with two partitions."""
    name = str(request.node.name).replace("[", ".").replace("]", "")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    eventually("the broker knows the topic", lambda: name in admin.list_topics(timeout=20).topics)
    return name
