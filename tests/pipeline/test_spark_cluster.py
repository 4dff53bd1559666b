"""The three jobs on a standalone Spark cluster with executors on two workers; and pipeline/shipping.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cluster import LocalCluster
from pipeline import shipping
from pipeline.run import Run, create_topics
from tests.support.spark_cluster import SparkCluster

MONTHS = 1


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), workers=2, cores=2) as cluster:
        yield cluster


def test_the_jobs_run_on_both_workers_and_the_audit_passes(
    spark_cluster: SparkCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in spark_cluster.settings().items():
        monkeypatch.setenv(name, value)
    with LocalCluster(tmp_path / "cluster", broker_count=1, first_port=0) as cluster:
        create_topics(cluster.bootstrap, 1)
        run = Run(tmp_path, cluster.bootstrap, MONTHS)
        try:
            run.stream()
            *tables, _ = run.audit()
        finally:
            run.stop()
    assert [table["title"] for table in tables] == ["busiest", "latest"]
    ran = [spark_cluster.applications(worker) for worker in range(2)]
    assert all(ran)
    assert len(set.union(*ran)) == 3


class OtherMachine:
    """A SparkContext whose executor sees only files in `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def parallelize(self, *_: Any) -> OtherMachine:
        return self

    def mapPartitions(self, look: Any) -> OtherMachine:  # noqa: N802 (Spark's name)
        token = Path(look.args[0])
        self._found = list(look.func(str(self._root / token.name), ()))
        return self

    def collect(self) -> list[tuple[str, bool]]:
        return self._found


def test_an_executor_that_does_not_share_the_directory_is_found(tmp_path: Path) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    assert shipping.blind_hosts(OtherMachine(shared), shared) == []
    assert len(shipping.blind_hosts(OtherMachine(other), shared)) == 1
    assert list(shared.iterdir()) == []
