"""The configuration of streams groups."""

from __future__ import annotations

from barnabas.broker.coordinators.streams_groups.environment import StreamsGroupConfig


def test_the_configs_of_the_assignment_are_what_kafka_keeps() -> None:
    assert StreamsGroupConfig(num_standby_replicas=2).assignment_configs == {"num.standby.replicas": "2"}
