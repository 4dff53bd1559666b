"""The versions of requests and responses that Apache Kafka 4.0 removed (KIP-896), for brokers that answer as before.

`messages/` has exactly the versions of Kafka 4.3. Here is a class of its own for each API that had more: its versions
start at 0 and end below the first of `messages/`. Nothing imports this package unless `barnabas.compat.release` is set.

Most classes have the fields of the class in `messages/`, of which they are subclasses: 4.0 left the removed versions in
the rows of its tables. Four structures had fields that are gone; their modules are beside this one.

Source: the message definitions of Apache Kafka 3.9.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from barnabas.protocol.api_keys import ROWS, ApiKey
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema import Message, Request, Response, StructMeta

#: The APIs with removed versions; these are 0 up to the version below the first of Kafka 4.3.
REMOVED: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)

#: The APIs whose removed versions had fields that are gone.
_WITH_OTHER_FIELDS: Final = frozenset({ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT, ApiKey.DESCRIBE_CONFIGS})


def highest_removed(api_key: int) -> int:
    """Return the highest version that 4.0 removed; -1 for an API that lost none."""
    return ROWS[api_key].min_version - 1 if api_key in REMOVED else -1


def removed_request(api_key: int) -> type[Request]:
    """Return the class of an API's requests in removed versions; raises KeyError for an API that lost none."""
    return _classes(int(api_key))[0]


def removed_response(api_key: int) -> type[Response]:
    """Return the class of an API's responses in removed versions; raises KeyError for an API that lost none."""
    return _classes(int(api_key))[1]


@cache
def _classes(api_key: int) -> tuple[type[Request], type[Response]]:
    if api_key not in REMOVED:
        raise KeyError(f"4.0 removed no version of the API with the key {api_key}")
    return _class_of(api_key, request_class(api_key)), _class_of(api_key, response_class(api_key))


def _class_of(api_key: int, current: type[Message]) -> Any:
    """Return the class of the removed versions: one with fields of its own, or a subclass of today's."""
    if api_key in _WITH_OTHER_FIELDS:
        module = import_module(f"{__name__}.k{api_key:02d}_{ApiKey(api_key).name.lower()}")
        own = getattr(module, current.__name__, None)
        if own is not None:
            return own
    made: Any = StructMeta(current.__name__, (current,), {"__slots__": ()}, versions=f"0-{highest_removed(api_key)}")
    made.FIELDS = current.FIELDS
    return made
