"""The error codes of a response, found by its schema.

A response may carry codes at any depth (Produce: a code for each partition). For each class one function is made, once,
that walks only the fields under which a code can be.

Threads: any. Making a function twice in two threads is harmless; one assignment publishes one.
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
    """Return every error code in the message, NONE (0) too, in order of appearance."""
    codes: list[int] = []
    collect = collector_for(type(message))
    if collect is not None:
        collect(message, codes)
    return codes


def collector_for(cls: type[Struct]) -> Collector | None:
    """Return the function that appends the codes of an instance to a list."""
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
