"""The settings and helpers that all group shards of a broker share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.classic.events import GroupSettings
from barnabas.broker.coordinators.consumer.context import ConsumerContext
from barnabas.broker.coordinators.groups.sensors import GroupSensors
from barnabas.broker.coordinators.runtime.committed_writes import LogWriter
from barnabas.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.share_groups.context import ShareContext
    from barnabas.broker.coordinators.streams_groups.context import StreamsContext
    from barnabas.broker.timing_wheel import Timer
    from barnabas.common.clock import Clock

WEEK_MS: Final = 7 * 24 * 3600 * 1000


@dataclass(slots=True)
class ShardContext:
    """One for each broker; the settings are replaced when the configuration changes."""

    writer: LogWriter
    clock: Clock
    timer: Timer
    sensors: GroupSensors
    consumers: ConsumerContext
    shares: ShareContext
    streams: StreamsContext
    settings: GroupSettings
    commit_timeout_ms: int = 5000  # offsets.commit.timeout.ms
    compression: CompressionType = CompressionType.NONE  # offsets.topic.compression.codec
    metadata_max_chars: int = 4096  # offset.metadata.max.bytes
    retention_ms: int = WEEK_MS  # offsets.retention.minutes
    retention_check_ms: int = 600_000  # offsets.retention.check.interval.ms
    checks_invariants: bool = sys.flags.dev_mode  # of each group after each change (`python -X dev`)
