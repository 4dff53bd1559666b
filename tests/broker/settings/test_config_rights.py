"""Which right a resource takes, by its type."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.settings.config_rights import ConfigRights
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.security.values import CLUSTER_NAME

RIGHTS = ConfigRights(rights.DESCRIBE_TOPIC_CONFIGS, rights.DESCRIBE_CLUSTER_CONFIGS, rights.DESCRIBE_GROUP_CONFIGS)


class Asked:
    """An access that notes the questions."""

    def __init__(self) -> None:
        self.questions: list[tuple[Any, str]] = []

    def require(self, row: Any, name: str) -> None:
        self.questions.append((row, name))


@pytest.mark.parametrize(
    ("kind", "row", "name"),
    [
        (ResourceType.TOPIC, RIGHTS.topic, "t"),
        (ResourceType.GROUP, RIGHTS.group, "t"),
        (ResourceType.BROKER, RIGHTS.cluster, CLUSTER_NAME),
        (ResourceType.BROKER_LOGGER, RIGHTS.cluster, CLUSTER_NAME),
        (ResourceType.CLIENT_METRICS, RIGHTS.cluster, CLUSTER_NAME),
        (99, RIGHTS.cluster, CLUSTER_NAME),
    ],
)
def test_the_right_of_a_resource(kind: int, row: Any, name: str) -> None:
    asked: Any = Asked()
    RIGHTS.require(asked, kind, "t")
    assert asked.questions == [(row, name)]
