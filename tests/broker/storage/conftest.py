"""Fixtures of the storage tests."""

from __future__ import annotations

import pytest

from tests.support.broker.storage_bench import Bench


@pytest.fixture
def bench() -> Bench:
    """A disk in memory, a clock and a scheduler that the test moves."""
    return Bench()
