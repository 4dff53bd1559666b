"""Which settings are secret: their values never leave the process, in logs, pages, reports or responses.

A value of a type of resource that is unknown, and the value of an unknown key, might be a secret and count as one.

Threads: none; pure.
Source: KafkaConfig.loggableValue and maybeSensitive, KafkaConfigSchema.isSensitive (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.config.listeners import base_name
from barnabas.config.table.key import Key
from barnabas.config.table.keys import BROKER_KEYS, DYNAMIC_KEYS, GROUP_KEYS, TOPIC_KEYS

#: What is shown in place of a secret, as Kafka's Password.toString.
HIDDEN: Final = "[hidden]"

#: What only the authorizer reads: for Kafka's brokers these keys are unknown, and who rules is told to nobody.
AUTHORIZER_KEYS: Final = frozenset({"allow.everyone.if.no.acl.found", "super.users"})

_TOPIC: Final = 2
_BROKER: Final = 4
_GROUP: Final = 32
#: Resources whose configs are never secret: BROKER_LOGGER and CLIENT_METRICS.
_OPEN: Final = frozenset({8, 16})


def broker_row(name: str) -> Key | None:
    """Return the row of a broker key: plain, of one listener, or of one listener and SASL mechanism."""
    base = base_name(name)
    row = DYNAMIC_KEYS.get(name) or BROKER_KEYS.get(base)
    if row is None and base != name:
        row = BROKER_KEYS.get(base.partition(".")[2])
    return row


_ROWS: Final[Mapping[int, Callable[[str], Key | None]]] = {
    _TOPIC: TOPIC_KEYS.get,
    _BROKER: broker_row,
    _GROUP: GROUP_KEYS.get,
}


def is_sensitive(resource_type: int, name: str) -> bool:
    """Whether the value of a config must be hidden; `resource_type` is one of ConfigResource.Type."""
    if resource_type in _OPEN:
        return False
    find = _ROWS.get(resource_type)
    row = None if find is None or name in AUTHORIZER_KEYS else find(name)
    return row is None or row.sensitive


def is_password(name: str) -> bool:
    """Whether a key of a properties file is known to hold a secret."""
    row = broker_row(name)
    return row is not None and row.sensitive
