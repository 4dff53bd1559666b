"""Both streaming jobs are killed half-way and started again: the audit shows that the results are the same.

The audit can also fail: it finds an invented flight and one wrong figure. Tests pipeline/run.py, ingest.py, delays.py,
spark.py and audit.py.
"""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.cluster import LocalCluster
from pipeline.run import Job, Run, RunError, create_topics

MONTHS = 1
REPORT_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    directory = tmp_path_factory.mktemp("pipeline")
    with LocalCluster(directory / "cluster", broker_count=1, first_port=0) as cluster:
        create_topics(cluster.bootstrap, 1)
        run = Run(directory, cluster.bootstrap, MONTHS)
        yield run
        run.stop()


def start(run: Run, job: str, *options: str) -> Job:
    """Start a job that reports to its own queue."""
    return run.start(job, *options, reports=queue.Queue())


def await_batches(job: Job, count: int) -> None:
    """Wait until the job has reported this many micro-batches."""
    for _ in range(count):
        _, report = job.reports.get(timeout=REPORT_TIMEOUT_S)
        assert report is not None, job.log.read_text()[-3000:]


def await_end(job: Job) -> None:
    """Wait until the job has ended without an error."""
    while job.reports.get(timeout=REPORT_TIMEOUT_S)[1] is not None:
        pass
    job.check_end()


def kill(job: Job) -> None:
    """Kill the job and its JVM, like a power failure."""
    os.killpg(job.process.pid, signal.SIGKILL)
    job.process.wait()


def test_killed_jobs_compute_the_same_results(run: Run) -> None:
    ingest = start(run, "ingest")
    await_batches(ingest, 2)
    kill(ingest)

    until = run.work_dir / "ingest.done"
    ingest = start(run, "ingest")
    delays = start(run, "delays", "--until", str(until))
    await_batches(delays, 1)
    kill(delays)
    await_end(ingest)

    until.touch()
    await_end(start(run, "delays", "--until", str(until)))
    *tables, picture = run.audit()
    assert [table["title"] for table in tables] == ["busiest", "latest"]
    assert [Path(str(picture[name])).name for name in ("picture", "page")] == ["delays.png", "delays.html"]


def test_the_audit_finds_wrong_records(run: Run) -> None:
    wrong = [
        ("flights", None, b'{"flight_id":"made up","carrier":"XX"}'),
        (
            "delays",
            b"EWR|UA|2013-01-01T10:00:00Z",
            b'{"origin":"EWR","carrier":"UA","hour":"2013-01-01T10:00:00Z","departed":1,"mean":0.0,"p95":0.0}',
        ),
    ]
    producer = Producer({"bootstrap.servers": run.bootstrap})
    for topic, key, value in wrong:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0
    with pytest.raises(RunError, match="audit failed"):
        run.audit()
    findings = run.jobs["audit"].log.read_text()
    assert "1 records of `flights` are too many or differ, e.g. made up" in findings
    assert "figures in topic `delays` are wrong: EWR|UA|2013-01-01T10:00:00Z" in findings
