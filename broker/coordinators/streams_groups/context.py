"""The parts that all group shards of a broker share for their streams groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.broker.coordinators.streams_groups.environment import StreamsGroupConfig, StreamsGroupSettings


@dataclass(slots=True)
class StreamsContext:
    """One for each broker; the settings are replaced whole when the configuration changes."""

    config_of: Callable[[str], StreamsGroupConfig]  # a group's own configuration, by group id
    settings: StreamsGroupSettings = field(default_factory=StreamsGroupSettings)
