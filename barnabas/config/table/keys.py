"""THE table of config keys: all of Apache Kafka 4.3's broker, topic and group keys, and our own.

The rows are in the `keys_*.py` files beside this one, by area. Parsing, DescribeConfigs, AlterConfigs, the
documentation and `--help` are derived from them.

Source: Kafka 4.3.1, AbstractKafkaConfig.CONFIG_DEF, LogConfig, GroupConfig, DynamicBrokerConfig.
"""

from __future__ import annotations

from typing import Final

from barnabas.config.table.key import REQUIRED, Importance, Key, Mode, Scope
from barnabas.config.table.keys_coordinators import COORDINATORS_ROWS
from barnabas.config.table.keys_dynamic import DYNAMIC_ROWS
from barnabas.config.table.keys_group import GROUP_ROWS
from barnabas.config.table.keys_own import OWN_ROWS
from barnabas.config.table.keys_remote import REMOTE_ROWS
from barnabas.config.table.keys_security import SECURITY_ROWS
from barnabas.config.table.keys_server import SERVER_ROWS
from barnabas.config.table.keys_storage import STORAGE_ROWS
from barnabas.config.table.keys_topic import TOPIC_ROWS
from barnabas.config.types import Type

__all__ = [
    "BROKER_KEYS",
    "BROKER_SYNONYMS",
    "DYNAMIC_KEYS",
    "GROUP_KEYS",
    "OWN_KEYS",
    "REQUIRED",
    "TABLE",
    "TOPIC_KEYS",
    "Importance",
    "Key",
    "Mode",
    "Scope",
    "Type",
]

_BROKER_ROWS: Final = SERVER_ROWS + STORAGE_ROWS + COORDINATORS_ROWS + SECURITY_ROWS + REMOTE_ROWS + OWN_ROWS

#: Every row.
TABLE: Final[tuple[Key, ...]] = _BROKER_ROWS + TOPIC_ROWS + GROUP_ROWS

#: Broker keys that can only be set at run time; no `Config` holds them.
DYNAMIC_KEYS: Final = {key.name: key for key in DYNAMIC_ROWS}
BROKER_KEYS: Final = {key.name: key for key in _BROKER_ROWS}
TOPIC_KEYS: Final = {key.name: key for key in TOPIC_ROWS}
GROUP_KEYS: Final = {key.name: key for key in GROUP_ROWS}
OWN_KEYS: Final = frozenset(key.name for key in OWN_ROWS)

_ROLL: Final = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER: Final = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")

#: Broker keys that configure the same thing in other units, the strongest first; other keys have no synonyms.
BROKER_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_ROLL, _ROLL),
    **dict.fromkeys(_ROLL_JITTER, _ROLL_JITTER),
    **dict.fromkeys(_RETENTION, _RETENTION),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
