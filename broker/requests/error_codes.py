"""Finds the error codes in a response by its schema.

A response may carry codes at any depth (Produce: one a partition). For each message class one function is created,
once. It visits only the fields that can contain a code.

Threads: any. Two threads may create the same function at once; that is harmless, and one assignment publishes it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from barnabas.protocol.schema import Struct

ERROR_FIELD: Final = "error_code"

Collector = Callable[[Any, list[int]], None]

_collectors: dict[type[Struct], Collector | None] = {}  # None: instances of this class carry no code


def error_codes_of(message: Struct) -> list[int]:
    """Return every error code in the message, NONE (0) included, in order of appearance."""
    codes: list[int] = []
    collect = collector_for(type(message))
    if collect is not None:
        collect(message, codes)
    return codes


def collector_for(cls: type[Struct]) -> Collector | None:
    """Return the function that appends the codes of an instance to a list; None if the class carries no code."""
    try:
        return _collectors[cls]
    except KeyError:
        collector = _collectors[cls] = _make(cls)
        return collector


def _make(cls: type[Struct]) -> Collector | None:
    has_code = any(field.name == ERROR_FIELD for field in cls.FIELDS)
    children: list[tuple[Callable[[Any], Any], Collector, bool]] = []
    for field in cls.FIELDS:
        if isinstance(field.element, type) and issubclass(field.element, Struct):
            child = collector_for(field.element)
            if child is not None:
                children.append((attrgetter(field.name), child, field.kind == "array"))
    if not children:
        return _append_code if has_code else None

    def collect(struct: Any, codes: list[int]) -> None:
        if has_code:
            codes.append(struct.error_code)
        for get, child, is_array in children:
            value = get(struct)
            if not value:
                continue
            for item in value if is_array else (value,):
                child(item, codes)

    return collect


def _append_code(struct: Any, codes: list[int]) -> None:
    codes.append(struct.error_code)
