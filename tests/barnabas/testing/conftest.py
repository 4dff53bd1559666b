"""One cluster for all tests of `barnabas.testing`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing import Cluster, cluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """A controller and a broker."""
    with cluster() as running:
        yield running


@pytest.fixture
def topic(kafka: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic for this test, with two partitions."""
    return kafka.create_topic(request.node.name, partitions=2)
