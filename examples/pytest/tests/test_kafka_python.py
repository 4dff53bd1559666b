from __future__ import annotations

from collections.abc import Iterator

import pytest
from shop import Archive

from barnabas.faults import Fault
from barnabas.testing import Cluster


@pytest.fixture
def archive(barnabas_cluster: Cluster, barnabas_topic: str) -> Iterator[Archive]:
    running = Archive(barnabas_cluster.bootstrap, barnabas_topic)
    yield running
    running.close()


def test_lines_are_kept_in_order(archive: Archive, barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    assert [archive.keep(line) for line in ("first", "second")] == [0, 1]
    assert [record.text for record in barnabas_cluster.records(barnabas_topic)] == ["first", "second"]


def test_the_leader_moves(archive: Archive, barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    moved = Fault(api="Produce", topic=barnabas_topic, error="NOT_LEADER_OR_FOLLOWER", times=2)
    with barnabas_cluster.faults.add(moved) as fault:
        assert archive.keep("a line") == 0
        assert fault.fired == 2


def test_requests_are_recorded(archive: Archive, barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    with barnabas_cluster.faults.recorder as recorder:
        archive.keep("a line")
        (request,) = recorder.wait(1, api="Produce", topic=barnabas_topic)
    assert request.client_id == "archive"
    assert request.errors == []


def test_the_archive_works_with_an_older_kafka(barnabas_cluster: Cluster, barnabas_topic: str) -> None:
    with barnabas_cluster.faults.add(Fault(api_versions="2.8")):
        archive = Archive(barnabas_cluster.bootstrap, barnabas_topic)
        assert archive.keep("a line") == 0
        archive.close()
