"""What all shards of a broker share for their consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.broker.coordinators.consumer_group_situation import ConsumerGroupSettings, GroupTimes
from barnabas.broker.coordinators.metadata_watch import MetadataWatch


@dataclass(slots=True)
class ConsumerContext:
    """The settings are replaced whole when the configuration changes.

    `times_of(group id)` gives a group's own configuration; `background(job)` has a job done on a thread that may take
    its time.
    """

    watch: MetadataWatch
    background: Callable[[Callable[[], None]], object]
    times_of: Callable[[str], GroupTimes]
    settings: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
