"""The config of a group: its own values override its broker's.

Source: Kafka 4.3, GroupConfig.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.config.errors import ConfigError
from barnabas.config.resources.overridable import Overridable
from barnabas.config.table.keys import GROUP_KEYS


class GroupConfig(Overridable):
    """The config of a group: every group key."""

    _KEYS = GROUP_KEYS


#: Group keys bounded by broker keys: (group key, broker key of the minimum, of the maximum).
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


def bounds_of(name: str) -> tuple[str, ...]:
    """Return the broker keys that bound the value of a group key."""
    protocol = name.partition(".")[0]
    return tuple(
        f"group.{protocol}.{bound}" for key, low, high in _GROUP_BOUNDS if key == name for bound in (low, high) if bound
    )


def bounded_values(group: GroupConfig, broker_value: Callable[[str], Any]) -> dict[str, int]:
    """Return what is used instead of own values of a group that are outside the broker's bounds.

    Why: they were set when the bounds were others. Kafka: GroupConfig.evaluate.
    """
    found = {}
    for name, low, high in _GROUP_BOUNDS:
        if name in group.overrides:
            value, prefix = group.values[name], f"group.{name.partition('.')[0]}."
            least = broker_value(prefix + low) if low else value
            bounded = min(max(value, least), broker_value(prefix + high))
            if bounded != value:
                found[name] = bounded
    return found


def check_group(group: GroupConfig, broker_value: Callable[[str], Any]) -> None:
    """Raise ConfigError for values outside the broker's bounds, or that contradict each other."""
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
