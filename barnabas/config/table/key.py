"""A row of the table of config keys."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from barnabas.config import types
from barnabas.config.types import Type
from barnabas.config.validators import Validator


class Importance(IntEnum):
    """The importance that Kafka gives to a key."""

    HIGH = 0
    MEDIUM = 1
    LOW = 2


class Mode(Enum):
    """How Kafka lets a broker key change while the broker runs (DynamicBrokerConfig)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Scope(Enum):
    """The resource that a key configures."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


#: The default of a key that has none.
REQUIRED: Final = "<required>"


class Key(NamedTuple):
    """One config key.

    `doc` is one or two sentences of our own for the reference. `mode` is Kafka's. `live`: a change at run time is
    applied; DescribeConfigs reports every other key as read-only. `honoured`: this project acts on the key; other keys
    are known and checked, but have no effect. `synonyms`: the broker keys that give a topic or group key its default,
    the strongest first, each with the factor that converts its unit to milliseconds. `internal`: a key that Kafka
    does not document, which is described only where it is set (ConfigDef.defineInternal).
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
    internal: bool = False

    @property
    def attribute(self) -> str:
        """The attribute of `Config` that holds the value."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def sensitive(self) -> bool:
        """Whether values are secret: DescribeConfigs never returns them."""
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Any:
        """Return the checked value of `text`; raise ConfigError. A checked list keeps the first of equal items."""
        value = types.parse(self.name, text, self.type)
        if self.validator is not None:
            self.validator(self.name, value)
            if self.type is Type.LIST and value is not None:
                value = tuple(dict.fromkeys(value))
        return value

    def to_text(self, value: Any) -> str | None:
        """Return the value as Kafka writes it."""
        return types.to_text(value, self.type)
