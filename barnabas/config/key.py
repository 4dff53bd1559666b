"""A row of the table of config keys."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from barnabas.config import types
from barnabas.config.types import Type
from barnabas.config.validators import Validator


class Importance(IntEnum):
    """How much a key matters."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class Mode(Enum):
    """How Kafka lets a broker key change while the broker runs (DynamicBrokerConfig)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Scope(Enum):
    """What a key configures."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"


#: The default of a key that has none.
REQUIRED: Final = "<required>"


class Key(NamedTuple):
    """One config key.

    `mode` is Kafka's; `live` says that a change at run time is applied here, and DescribeConfigs calls every other key
    read-only. `honoured` says that this project acts on the key (the others are known and checked, no more).
    `synonyms` are the broker keys that give a topic or group key its default, the strongest first, each with the factor
    that turns its unit into milliseconds.
    """

    name: str
    type: Type
    default: Any
    importance: Importance
    validator: Validator | None
    doc: str
    mode: Mode = Mode.READ_ONLY
    honoured: bool = False
    live: bool = False
    scope: Scope = Scope.BROKER
    synonyms: tuple[tuple[str, int], ...] = ()

    @property
    def attribute(self) -> str:
        """The name under which `Config` holds the value."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Any:
        """Return the checked value of `text`; raise ConfigError."""
        value = types.parse(self.name, text, self.type)
        if self.validator is not None:
            self.validator(self.name, value)
        return value

    def to_text(self, value: Any) -> str | None:
        """Return the value as Kafka writes it."""
        return types.to_text(value, self.type)
