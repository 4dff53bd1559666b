"""Client metrics subscriptions (KIP-714): which clients push which metrics, and how often.

A client matches a subscription if every pattern of `match` matches the client's attribute as a whole. It pushes the
metrics of all its subscriptions, at the shortest of their intervals.

Threads: the thread that applies configs calls `update`; any thread reads `current`.

Source: ClientMetricsManager, ClientMetricsInstanceMetadata (Kafka 4.3). Different from Apache Kafka: the metrics in a
subscription id are sorted; Kafka has them in the order of a hash table. So the ids of two or more names may differ from
Kafka's, and are the same on every broker here.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.regex.pattern import PatternError, matcher
from barnabas.config.errors import ConfigError
from barnabas.config.resources.client_metrics import INTERVAL, INTERVAL_DEFAULT_MS, MATCH, METRICS, parse_match
from barnabas.protocol.records.crc import crc32c

if TYPE_CHECKING:
    from barnabas.config.resources.client_metrics import ClientMetricsConfig

log = logging.getLogger("barnabas.telemetry")

ALL: Final = "*"
#: A client's attributes, by their names in `match`. None matches no pattern.
Attributes = Mapping[str, str | None]

_HALVES: Final = struct.Struct(">QQ")


class Wanted(NamedTuple):
    """The metrics that a client is to push, and how often."""

    metrics: tuple[str, ...] = ()  # prefixes of names, sorted; "*" alone: all metrics
    interval_ms: int = INTERVAL_DEFAULT_MS

    def has(self, name: str) -> bool:
        """Return whether a metric of this name is wanted."""
        return self.metrics == (ALL,) or name.startswith(self.metrics)

    def subscription_id(self, instance_id: bytes) -> int:
        """Return the id of this subscription for a client: a CRC of it, with the client's id mixed in."""
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        high, low = _HALVES.unpack(instance_id)
        folded: int = high ^ low
        mixed: int = (int(crc32c(text.encode())) ^ folded >> 32 ^ folded) & 0xFFFFFFFF
        return mixed - (1 << 32) if mixed >> 31 else mixed


class _Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Callable[[str], bool]]

    def matches(self, attributes: Attributes) -> bool:
        values = [(matches, attributes.get(name)) for name, matches in self.patterns.items()]
        return all(value is not None and matches(value) for matches, value in values)


class Snapshot(NamedTuple):
    """All subscriptions at one moment; `version` grows with each change."""

    version: int
    by_name: Mapping[str, _Subscription]

    def wanted(self, attributes: Attributes) -> Wanted:
        """Return what a client with these attributes is to push."""
        matching = [each for each in self.by_name.values() if each.matches(attributes)]
        metrics = {name for each in matching for name in each.metrics}
        interval_ms = min([INTERVAL_DEFAULT_MS, *(each.interval_ms for each in matching)])
        return Wanted((ALL,) if ALL in metrics else tuple(sorted(metrics)), interval_ms)


class Subscriptions:
    """The subscriptions that a broker knows."""

    def __init__(self) -> None:
        self.current = Snapshot(0, {})  # replaced whole by `update`

    def update(self, name: str, config: ClientMetricsConfig | None) -> None:
        """Note a new or changed subscription; None: it is deleted. One that cannot be used is logged and ignored."""
        version, by_name = self.current.version + 1, dict(self.current.by_name)
        by_name.pop(name, None)
        if config is not None:
            values = config.values
            try:
                patterns = {key: matcher(pattern) for key, pattern in parse_match(values[MATCH]).items()}
            except (ConfigError, PatternError) as error:
                log.warning("the client metrics subscription %.200r is ignored: %s", name, error)
            else:
                by_name[name] = _Subscription(values[METRICS], values[INTERVAL], patterns)
        self.current = Snapshot(version, by_name)
