"""Configs of topics and groups, which override values of the broker.

Where a topic or group has no value of its own, a broker key gives it (`Key.synonyms`, in order, with units converted).
The topic or group key's own default comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.config.errors import ConfigError
from barnabas.config.table.key import Key


def inherited(keys: Mapping[str, Key], broker_value: Callable[[str], Any]) -> dict[str, Any]:
    """Return the value of each key without overrides; `broker_value` reads a broker key."""
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
    """Values by attribute (`retention_ms` for `retention.ms`); immutable.

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


def reject_nulls(overrides: Mapping[str, str | None], resource: str) -> dict[str, str]:
    """Return the overrides; raise ConfigError if any is null."""
    nulls = [name for name, value in overrides.items() if value is None]
    if nulls:
        raise ConfigError(f"Null value not supported for {resource} configs: {','.join(nulls)}")
    return {name: value for name, value in overrides.items() if value is not None}
