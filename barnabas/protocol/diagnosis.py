"""Finds the field because of which a message cannot be encoded.

The encoders check nothing that Python refuses anyway (None has no length, 70000 is no int16), which keeps them fast.
When an encoder fails, this walk over the same rows finds the field.
"""

from __future__ import annotations

import struct
from typing import Any

from barnabas.protocol.codec import FIXED
from barnabas.protocol.fields import Field


def diagnose(value: Any, version: int, path: str = "") -> str | None:
    """Return what is wrong with the first bad field of a structure, or None if nothing is found."""
    for field in value.FIELDS:
        if not field.is_present(version):
            continue
        reason = _diagnose_field(field, getattr(value, field.name), version, f"{path}{field.name}")
        if reason:
            return reason
    return None


def _diagnose_field(field: Field, value: Any, version: int, path: str) -> str | None:
    if value is None:
        return None if field.is_nullable(version) else f"{path} must not be null"
    if field.kind == "array":
        return _diagnose_array(field, value, version, path)
    if field.kind == "struct":
        return _diagnose_struct(field.element, value, version, path)
    return _diagnose_plain(field.kind, value, path)


def _diagnose_array(field: Field, value: Any, version: int, path: str) -> str | None:
    if not isinstance(value, (list, tuple)):
        return f"{path} must be a list, not {type(value).__name__}"
    for index, item in enumerate(value):
        where = f"{path}[{index}]"
        if isinstance(field.element, str):
            reason = _diagnose_plain(field.element, item, where)
        else:
            reason = _diagnose_struct(field.element, item, version, where)
        if reason:
            return reason
    return None


def _diagnose_struct(cls: Any, value: Any, version: int, path: str) -> str | None:
    if not isinstance(value, cls):
        return f"{path} must be a {cls.__name__}, not {type(value).__name__}"
    return diagnose(value, version, f"{path}.")


def _diagnose_plain(kind: str, value: Any, path: str) -> str | None:
    if kind in FIXED:
        try:
            struct.pack(f">{FIXED[kind][1]}", value)
        except struct.error as error:
            return f"{path} = {value!r} is no {kind}: {error}"
    elif kind == "string":
        if not isinstance(value, str):
            return f"{path} must be a str, not {type(value).__name__}"
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            return f"{path} is no text: {error}"
        if size > 0x7FFF:
            return f"{path} of {size} bytes is too long"
    elif kind == "bytes" and not isinstance(value, (bytes, bytearray, memoryview)):
        return f"{path} must be bytes, not {type(value).__name__}"
    return None
