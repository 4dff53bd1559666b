"""A cluster with an authorizer that allows everything without a rule, for the commands about users, ACLs and quotas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.cli.address import VARIABLE
from tests.support.cluster import BarnabasCluster

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",  # the commands of the tests
}


@pytest.fixture(scope="session")
def authorizing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """A controller and a broker."""
    directory = tmp_path_factory.mktemp("authorizing")
    with BarnabasCluster(directory, broker_count=1, first_port=0, config=AUTHORIZER) as running:
        yield running


@pytest.fixture
def secured(authorizing: BarnabasCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster's address, which commands use by default."""
    monkeypatch.setenv(VARIABLE, authorizing.bootstrap)
    return authorizing.bootstrap
