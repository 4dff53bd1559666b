"""Two Spark streaming queries read one topic while its leaders move: no batch fails, each record is read once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.eos.reading import read_all
from tests.pipeline.two_queries import NAMES
from tests.support.cluster import BarnabasCluster
from tests.support.history import ProduceLoad
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
TOPIC = "moved"
PARTITIONS, BROKERS = 3, 3
# Each broker leads a partition, so each of these moves leaders away and back.
MOVES = ((0, signal.SIGTERM), (1, signal.SIGKILL), (2, signal.SIGTERM), (0, signal.SIGKILL))
BATCHES_PER_MOVE = 2  # that each query must finish before the next move
BATCH_TIMEOUT_MS = 300_000  # the first one waits for Spark to start
END_TIMEOUT_S = 300
CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "min.insync.replicas": "2",
    "leader.imbalance.check.interval.seconds": "2",
    "barnabas.metrics.port": "-1",
}


class Queries:
    """The program with the queries, and the last batch that each of them has reported."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self.batches = dict.fromkeys(NAMES, -1)  # owner: the listening thread
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.two_queries", bootstrap, TOPIC, str(directory)],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def await_batches(self, count: int) -> None:
        """Wait until each query has finished this many more batches."""
        goals = {name: batch + count for name, batch in self.batches.items()}

        def is_reached() -> bool:
            assert self.process.poll() is None, f"a query failed: {self.log()}"
            return all(self.batches[name] >= goal for name, goal in goals.items())

        eventually(f"{count} more batches of each query", is_reached, BATCH_TIMEOUT_MS)

    def finish(self) -> int:
        """Let the queries read the rest; return the exit code."""
        (self._directory / "stop").touch()
        return self.process.wait(END_TIMEOUT_S)

    def output(self, name: str) -> Counter[str]:
        """The lines that a query wrote, with their counts."""
        files = (self._directory / name / "output").glob("part-*")
        return Counter(line for file in files for line in file.read_text().splitlines())

    def log(self) -> str:
        """The end of the program's error output."""
        return (self._directory / "log").read_text()[-3000:]

    def close(self) -> None:
        """End the program and its JVM, if they run."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._thread.join()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for progress in map(json.loads, lines):
                self.batches[progress["query"]] = progress["batch"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with BarnabasCluster(tmp_path / "cluster", broker_count=BROKERS, first_port=0, config=CONFIG) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)])[TOPIC].result(20)
        yield cluster


@pytest.fixture
def queries(cluster: BarnabasCluster, tmp_path: Path) -> Iterator[Queries]:
    queries = Queries(cluster.bootstrap, tmp_path / "queries")
    yield queries
    queries.close()


def test_no_batch_fails_while_leaders_move(cluster: BarnabasCluster, queries: Queries) -> None:
    with ProduceLoad(cluster.bootstrap, TOPIC, PARTITIONS, padding="") as load:
        queries.await_batches(1)
        for broker_id, number in MOVES:
            node = cluster.nodes[broker_id]
            cluster.stop_node(node, number)
            queries.await_batches(BATCHES_PER_MOVE)
            cluster.start_node(node)
            cluster.await_ready()
            queries.await_batches(1)
        load.stop()
    assert load.errors == []
    assert queries.finish() == 0, queries.log()
    topic = read_all({"bootstrap.servers": cluster.bootstrap}, TOPIC, PARTITIONS)
    wanted = Counter(record.value for records in topic.values() for record in records)
    for name in NAMES:
        found = queries.output(name)
        assert found == wanted, f"{name}: {len(wanted - found)} missing, {len(found - wanted)} too many"
