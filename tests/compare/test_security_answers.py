"""ACLs, SCRAM credentials, client quotas and delegation tokens: responses and texts are Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compare import golden
from tests.compare.security_questions import CONFIG, Answers, answers
from tests.support.cluster import BarnabasCluster


@pytest.fixture(scope="module")
def our_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """Barnabas's responses by question, from an unused broker with an authorizer."""
    directory = tmp_path_factory.mktemp("compare-security")
    with BarnabasCluster(directory, broker_count=1, first_port=0, config=CONFIG) as cluster:
        yield answers(cluster.brokers[0].port)


@pytest.mark.parametrize("question", golden.load_security())
def test_the_response_is_kafkas(question: str, our_answers: Answers) -> None:
    assert our_answers[question] == golden.load_security()[question]
