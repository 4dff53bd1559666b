"""What topics and groups may override: their own values over those of the broker.

A broker key gives a topic key its value when the topic has none of its own (`Key.synonyms`, in order, with units
converted); the topic key's own default comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.config.errors import ConfigError
from barnabas.config.keys import GROUP_KEYS, TOPIC_KEYS, Key


def inherited(keys: Mapping[str, Key], broker_value: Callable[[str], Any]) -> dict[str, Any]:
    """Return what each key is worth where nothing overrides it; `broker_value` reads a broker key."""
    values = {}
    for key in keys.values():
        value = None
        for name, factor in key.synonyms:
            value = broker_value(name)
            if value is not None:
                if factor != 1:
                    value = -1 if value < 0 else value * factor
                break
        values[key.name] = key.default if value is None else value
    return values


class Overridable:
    """Values by attribute (`retention_ms` for `retention.ms`); never changed once made.

    `overrides` holds the texts that were set for this resource itself.
    """

    _KEYS: Mapping[str, Key] = {}

    def __init__(self, defaults: Mapping[str, Any], overrides: Mapping[str, str]) -> None:
        values = dict(defaults)
        for name, text in overrides.items():
            key = self._KEYS.get(name)
            if key is not None:
                values[name] = key.parse(text)
        self.values = values  # fixed
        self.overrides = dict(overrides)  # fixed
        state = self.__dict__
        for name, key in self._KEYS.items():
            state[key.attribute] = values[name]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no config key has the attribute {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.values == self.values

    __hash__ = None  # type: ignore[assignment]


class TopicConfig(Overridable):
    """The config of a topic's logs: every topic key, and what follows from them.

    `compact`, `delete`: the cleanup policies. `segment_bytes` is `internal.segment.bytes` where a test set that.
    `max_segment_ms`: time after which a segment is rolled, no later than `max.compaction.lag.ms` if compacted.
    """

    _KEYS = TOPIC_KEYS

    compact: bool
    delete: bool
    max_segment_ms: int

    def __init__(
        self, defaults: Mapping[str, Any], overrides: Mapping[str, str], internal_segment_bytes: int | None = None
    ) -> None:
        super().__init__(defaults, overrides)
        values = self.values
        self.compact = "compact" in values["cleanup.policy"]
        self.delete = "delete" in values["cleanup.policy"]
        self.max_segment_ms = values["segment.ms"]
        if self.compact and values["max.compaction.lag.ms"] > 0:
            self.max_segment_ms = min(self.max_segment_ms, values["max.compaction.lag.ms"])
        if internal_segment_bytes is not None:
            self.segment_bytes = internal_segment_bytes


class GroupConfig(Overridable):
    """The config of a group: every group key."""

    _KEYS = GROUP_KEYS


def reject_nulls(overrides: Mapping[str, str | None], resource: str) -> dict[str, str]:
    """Return the overrides, none of which may be null."""
    nulls = [name for name, value in overrides.items() if value is None]
    if nulls:
        raise ConfigError(f"Null value not supported for {resource} configs: {','.join(nulls)}")
    return {name: value for name, value in overrides.items() if value is not None}


def check_topic(topic: TopicConfig) -> None:
    """Raise ConfigError for values that contradict each other."""
    low, high = topic.values["min.compaction.lag.ms"], topic.values["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if topic.values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


#: Group keys that must lie between two broker keys: (group key, broker key of the least, of the most).
_GROUP_BOUNDS = (
    ("consumer.heartbeat.interval.ms", "min.heartbeat.interval.ms", "max.heartbeat.interval.ms"),
    ("consumer.session.timeout.ms", "min.session.timeout.ms", "max.session.timeout.ms"),
    ("consumer.assignment.interval.ms", "min.assignment.interval.ms", "max.assignment.interval.ms"),
    ("share.heartbeat.interval.ms", "min.heartbeat.interval.ms", "max.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "min.session.timeout.ms", "max.session.timeout.ms"),
    ("share.record.lock.duration.ms", "min.record.lock.duration.ms", "max.record.lock.duration.ms"),
    ("share.delivery.count.limit", "min.delivery.count.limit", "max.delivery.count.limit"),
    ("share.partition.max.record.locks", "min.partition.max.record.locks", "max.partition.max.record.locks"),
    ("share.assignment.interval.ms", "min.assignment.interval.ms", "max.assignment.interval.ms"),
    ("streams.heartbeat.interval.ms", "min.heartbeat.interval.ms", "max.heartbeat.interval.ms"),
    ("streams.session.timeout.ms", "min.session.timeout.ms", "max.session.timeout.ms"),
    ("streams.num.standby.replicas", "", "max.standby.replicas"),
    ("streams.assignment.interval.ms", "min.assignment.interval.ms", "max.assignment.interval.ms"),
)


def check_group(group: GroupConfig, broker_value: Callable[[str], Any]) -> None:
    """Raise ConfigError for values that the broker does not allow groups to have, or that contradict each other."""
    for name, low, high in _GROUP_BOUNDS:
        value, protocol = group.values[name], name.partition(".")[0]
        if name.endswith("assignment.interval.ms") and name not in group.overrides:
            continue
        least, most = f"group.{protocol}.{low}", f"group.{protocol}.{high}"
        if low and value < broker_value(least):
            raise ConfigError(f"{name} must be greater than or equal to {least}")
        if value > broker_value(most):
            raise ConfigError(f"{name} must be less than or equal to {most}")
    for protocol in ("consumer", "share", "streams"):
        session, heartbeat = f"{protocol}.session.timeout.ms", f"{protocol}.heartbeat.interval.ms"
        if group.values[session] <= group.values[heartbeat]:
            raise ConfigError(f"{session} must be greater than {heartbeat}")
