"""Short names for writing the rows of the table."""

from __future__ import annotations

from typing import Final

from barnabas.config.table.key import REQUIRED, Importance, Key, Mode, Scope
from barnabas.config.types import Type

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = Type
HIGH, MEDIUM, LOW = Importance
READ_ONLY, PER_BROKER, CLUSTER_WIDE = Mode
BROKER, TOPIC, GROUP = Scope.BROKER, Scope.TOPIC, Scope.GROUP

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
MINUTES: Final = 60_000
HOURS: Final = 3_600_000
DEFAULT_LOG_DIR: Final = ("/tmp/kafka-logs",)

__all__ = [
    "BOOLEAN",
    "BROKER",
    "CLASS",
    "CLUSTER_WIDE",
    "DEFAULT_LOG_DIR",
    "DOUBLE",
    "DOUBLE_MAX",
    "GROUP",
    "HIGH",
    "HOURS",
    "INT",
    "INT_MAX",
    "LIST",
    "LONG",
    "LONG_MAX",
    "LOW",
    "MEDIUM",
    "MINUTES",
    "PASSWORD",
    "PER_BROKER",
    "READ_ONLY",
    "REQUIRED",
    "SHORT",
    "STRING",
    "TOPIC",
    "Key",
]
