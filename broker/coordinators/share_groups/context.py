"""The parts that all group shards of a broker share for their share groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.consumer.environment import GroupTimes
from barnabas.broker.coordinators.share_groups.environment import ShareGroupSettings

if TYPE_CHECKING:
    from barnabas.broker.coordinators.share_state.values import Persister


@dataclass(slots=True)
class ShareContext:
    """One for each broker; the settings are replaced whole when the configuration changes."""

    persister: Persister
    times_of: Callable[[str], GroupTimes]  # a group's own configuration, by group id
    settings: ShareGroupSettings = field(default_factory=ShareGroupSettings)
