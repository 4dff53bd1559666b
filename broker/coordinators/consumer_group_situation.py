"""The world in which decisions about consumer groups are made: configuration, time, the cluster's topics. Values."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.coordinators.metadata_watch import Picture


@dataclass(slots=True, frozen=True)
class ConsumerGroupSettings:
    """The broker's limits; may be replaced while groups run (dynamic configuration)."""

    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default
    max_size: int = 2**31 - 1
    classic_max_size: int = 2**31 - 1
    may_upgrade: bool = True
    may_downgrade: bool = True
    regex_refresh_ms: int = 600_000


@dataclass(slots=True, frozen=True)
class GroupTimes:
    """A group's own configuration."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(slots=True, frozen=True)
class Situation:
    """The world in which a turn decides; `now_ms` is wall time."""

    picture: Picture
    now_ms: int
    settings: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    times: GroupTimes = field(default_factory=GroupTimes)
