"""The settings of all sessions of Spark in these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.spark_cluster import write_defaults


@pytest.fixture(scope="session", autouse=True)
def small_jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jobs start with JVMs that compile little: each runs for half a minute, most of which it would compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(write_defaults(tmp_path_factory.mktemp("conf"))))
        yield
