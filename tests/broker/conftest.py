"""A network layer on a loopback port, and a client of it that every test must leave undisturbed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.protocol.errors import ErrorCode
from tests.support.broker.network import Client, Network


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def bystander(network: Network) -> Iterator[Client]:
    """Another client's connection, which must work before and after the test."""
    with network.client() as client:
        assert client.heartbeat("ok") == ErrorCode.NONE
        yield client
        assert client.heartbeat("ok", 99) == ErrorCode.NONE
