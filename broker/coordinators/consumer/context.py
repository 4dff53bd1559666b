"""What all group shards of a broker share for their consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.broker.coordinators.consumer.environment import ConsumerGroupSettings, GroupTimes
from barnabas.broker.coordinators.consumer.metadata_watch import MetadataWatch


@dataclass(slots=True)
class ConsumerContext:
    """One for each broker; the settings are replaced whole when the configuration changes."""

    watch: MetadataWatch
    background: Callable[[Callable[[], None]], object]  # runs a job on a thread that may take its time
    times_of: Callable[[str], GroupTimes]  # a group's own configuration, by group id
    settings: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
