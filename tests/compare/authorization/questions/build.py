"""Requests from plain dictionaries, so that a list of them is short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.protocol.fields import Field
from barnabas.protocol.messages import request_class
from barnabas.protocol.schema import Request, Struct


def build(key: int, fields: Mapping[str, Any]) -> Request:
    """Return a request; dictionaries in it become the structures of its fields."""
    made: Request = _struct(request_class(key), fields)
    return made


def _struct(struct: type[Struct], fields: Mapping[str, Any]) -> Any:
    rows = {row.name: row for row in struct.FIELDS}
    return struct(**{name: _value(rows[name], value) for name, value in fields.items()})


def _value(field: Field, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _struct(field.element, value)
    if isinstance(value, list):
        return [_value(field, item) for item in value]
    return value
