"""The config of a client metrics subscription (KIP-714): what clients would send, how often, and which of them.

Different from Apache Kafka: the patterns of `match` are RE2's, which has neither look-around nor back-references.

Source: Kafka 4.3, ClientMetricsConfigs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.common.regex.pattern import PatternError, check_pattern
from barnabas.config.errors import ConfigError
from barnabas.config.resources.overridable import Overridable
from barnabas.config.table.key import Importance, Key, Scope
from barnabas.config.types import Type
from barnabas.config.validators import list_of

METRICS: Final = "metrics"
INTERVAL: Final = "interval.ms"
MATCH: Final = "match"
INTERVAL_DEFAULT_MS: Final = 300_000
INTERVAL_MIN_MS: Final = 100
INTERVAL_MAX_MS: Final = 3_600_000
#: What a client can be selected by.
MATCHED: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS_KEYS: Final = {
    key.name: key
    for key in (
        Key(METRICS, Type.LIST, (), Importance.MEDIUM, list_of(),
            "Prefixes of the names of the metrics that clients send; * for all.", scope=Scope.CLIENT_METRICS),
        Key(INTERVAL, Type.INT, INTERVAL_DEFAULT_MS, Importance.MEDIUM, None,
            "How often clients send metrics.", scope=Scope.CLIENT_METRICS),
        Key(MATCH, Type.LIST, (), Importance.MEDIUM, list_of(),
            "Which clients send metrics: name=pattern, all if empty.", scope=Scope.CLIENT_METRICS),
    )
}  # fmt: skip
_DEFAULTS: Final = {key.name: key.default for key in CLIENT_METRICS_KEYS.values()}


class ClientMetricsConfig(Overridable):
    """The config of a subscription, by its own values; raises ConfigError for one that cannot be parsed."""

    _KEYS = CLIENT_METRICS_KEYS

    def __init__(self, overrides: Mapping[str, str]) -> None:
        super().__init__(_DEFAULTS, overrides)


def parse_match(entries: Iterable[str]) -> dict[str, str]:
    """Return the pattern of each attribute that `match` names; the last one, if it names an attribute twice.

    Raises ConfigError for an entry that selects nothing, or whose pattern is not valid.
    """
    patterns = {}
    for entry in entries:
        name, *values = _split(entry)
        if len(values) != 1 or name.strip() not in MATCHED:
            raise ConfigError(f"Illegal client matching pattern: {entry}")
        pattern = values[0].strip()
        try:
            check_pattern(pattern)
        except PatternError:
            raise ConfigError(f"Illegal client matching pattern: {entry}") from None
        patterns[name.strip()] = pattern
    return patterns


def _split(entry: str) -> list[str]:
    """Split at each "=", as Java's String.split does: without the empty parts at the end."""
    parts = entry.split("=")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
