"""The environment of decisions about streams groups: configuration, time, the cluster's topics. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.coordinators.consumer.metadata_watch import MetadataImage


@dataclass(slots=True, frozen=True)
class StreamsGroupSettings:
    """The broker's limits; replaced whole when the configuration changes."""

    max_size: int = 2**31 - 1  # group.streams.max.size


@dataclass(slots=True, frozen=True)
class StreamsGroupConfig:
    """A group's own configuration: the keys `streams.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    initial_rebalance_delay_ms: int = 3_000
    num_standby_replicas: int = 0

    @property
    def assignment_configs(self) -> dict[str, str]:
        """The part of it that decides the assignment; the group's metadata record keeps it."""
        return {"num.standby.replicas": str(self.num_standby_replicas)}


@dataclass(slots=True, frozen=True)
class Environment:
    """The values that a turn may read beside its group; `now_ms` is wall time."""

    image: MetadataImage
    now_ms: int
    settings: StreamsGroupSettings = field(default_factory=StreamsGroupSettings)
    config: StreamsGroupConfig = field(default_factory=StreamsGroupConfig)
