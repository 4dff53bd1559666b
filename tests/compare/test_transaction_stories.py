"""Transactions behave as on Apache Kafka, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compare import transaction_stories
from tests.support.cluster import BarnabasCluster


@pytest.fixture(scope="module")
def our_stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """Barnabas's transcripts by story."""
    config = {"auto.create.topics.enable": "false"}
    with BarnabasCluster(tmp_path_factory.mktemp("compare"), broker_count=1, first_port=0, config=config) as cluster:
        # The inter-broker listener: the stories contain brokers' requests, which the listener for clients rejects.
        yield dict(transaction_stories.run_stories(cluster.brokers[0].internal_port))


@pytest.mark.parametrize("story", [story.__name__ for story in transaction_stories.STORIES])
def test_the_story_is_kafkas(story: str, our_stories: dict[str, list[str]]) -> None:
    assert our_stories[story] == transaction_stories.load()[story]
