"""Barnabas responds as Apache Kafka does: error codes, defaults and offsets, in every version of a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compare import deviations, golden
from tests.compare.conversation import AnswersByVersion
from tests.compare.questions import advertised, answers
from tests.support.cluster import BarnabasCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """An unused broker."""
    config = {"auto.create.topics.enable": "false"}
    with BarnabasCluster(tmp_path_factory.mktemp("compare"), broker_count=1, first_port=0, config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def our_answers(cluster: BarnabasCluster) -> dict[str, AnswersByVersion]:
    """Barnabas's responses by question."""
    return answers(cluster.brokers[0].port)


@pytest.mark.parametrize("question", golden.load())
def test_the_response_is_kafkas(question: str, our_answers: dict[str, AnswersByVersion]) -> None:
    theirs = deviations.apply(question, golden.load()[question])
    ours = our_answers[question]
    assert ours == theirs


def test_advertised_apis_have_kafkas_versions(cluster: BarnabasCluster) -> None:
    ours = advertised(cluster.brokers[0].port)
    theirs = {**golden.load_advertised(), **deviations.ADVERTISED}
    assert ours == theirs
