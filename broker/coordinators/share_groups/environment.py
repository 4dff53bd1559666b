"""The environment of decisions about share groups: configuration, time, the cluster's topics. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.broker.coordinators.consumer.environment import GroupTimes
from barnabas.broker.coordinators.consumer.metadata_watch import MetadataImage


@dataclass(slots=True, frozen=True)
class ShareGroupSettings:
    """The broker's limits; replaced whole when the configuration changes."""

    max_size: int = 200  # group.share.max.size


@dataclass(slots=True, frozen=True)
class Environment:
    """The values that a turn may read beside its group; `now_ms` is wall time."""

    image: MetadataImage
    now_ms: int
    settings: ShareGroupSettings = field(default_factory=ShareGroupSettings)
    times: GroupTimes = field(default_factory=GroupTimes)
