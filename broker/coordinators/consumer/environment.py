"""The environment of decisions about consumer groups: configuration, time, the cluster's topics. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.coordinators.consumer.metadata_watch import MetadataImage


@dataclass(slots=True, frozen=True)
class ConsumerGroupSettings:
    """The broker's limits; replaced whole when the configuration changes."""

    assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors; the first is the default
    max_size: int = 2**31 - 1  # group.consumer.max.size
    classic_max_size: int = 2**31 - 1  # group.max.size
    may_upgrade: bool = True  # group.consumer.migration.policy
    may_downgrade: bool = True  # group.consumer.migration.policy
    regex_refresh_ms: int = 600_000


@dataclass(slots=True, frozen=True)
class GroupTimes:
    """A group's own configuration."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(slots=True, frozen=True)
class Environment:
    """What a turn may read beside its group; `now_ms` is wall time."""

    image: MetadataImage
    now_ms: int
    settings: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    times: GroupTimes = field(default_factory=GroupTimes)
