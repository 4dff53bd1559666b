"""What a response tells about rights: its errors, the names in it, and the operations that it lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Struct

_NAMES = {
    "name", "topic", "topic_name", "group_id", "group", "transactional_id", "resource_name", "key", "token_id",
    "principal",
}  # fmt: skip
# Lists whose length depends on the broker, not on the client's rights.
_ANY = {"brokers", "nodes", "configs", "records", "partition_errors_of_brokers"}
CLOSED = "the connection is closed"
Summary = Any  # a JSON value


def summarize(response: Struct | None, known: Mapping[str | bytes, str]) -> Summary:
    """Return what is compared. `known` are the names and ids of the comparison, as they are shown.

    Items of lists that have another name belong to nobody's case, and are left out.
    """
    return CLOSED if response is None else _of_struct(response, known)


def _of_struct(value: Struct, known: Mapping[str | bytes, str]) -> dict[str, Summary]:
    found: dict[str, Summary] = {}
    for field in value.FIELDS:
        shown = _of_field(getattr(value, field.name), field.name, known)
        if shown is not None:
            found[field.name] = shown
    return found


def _of_field(value: Any, name: str, known: Mapping[str | bytes, str]) -> Summary:
    if "error_code" in name:
        return ErrorCode(value).name
    if name.endswith("authorized_operations"):
        return value
    if name == "topic_id":
        return known.get(value, "no id" if value == ZERO_UUID else "an id")
    if name in _NAMES:
        return known.get(value, value if value in ("", None) else "a name")
    if isinstance(value, Struct):
        return _of_struct(value, known)
    if name in _ANY:
        return "some" if value else "none"
    if isinstance(value, list) and all(isinstance(item, Struct) for item in value):
        return _of_list(value, known)
    return None


def _of_list(items: list[Struct], known: Mapping[str | bytes, str]) -> list[Summary]:
    """Return the different items, in one order for all brokers."""
    shown = {json.dumps(_of_struct(item, known)) for item in items if not _is_foreign(item, known)}
    return [json.loads(text) for text in sorted(shown)]


def _is_foreign(item: Struct, known: Mapping[str | bytes, str]) -> bool:
    """Whether an item is about a resource of the broker that is no part of the comparison."""
    values = [getattr(item, field.name) for field in item.FIELDS if field.name in _NAMES]
    return any(value and value not in known for value in values)
