"""The nine types of config values: text to value and back, by the rules of Kafka's ConfigDef.

Texts are trimmed. A PASSWORD is a `Password`, which never prints its value; a LIST is a tuple of strings; a CLASS is
its name (nothing is loaded).
"""

from __future__ import annotations

import math
import re
from enum import IntEnum
from typing import Any, Final

from barnabas.config.errors import ConfigError


class Type(IntEnum):
    """Types, with the numbers that DescribeConfigs uses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Password:
    """A secret: compared by value, hidden in logs and messages."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return "[hidden]"


_BITS: Final = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
# Patterns are compiled at their first use, not at the start.
_INTEGER: Final = r"[+-]?[0-9]+"
_NUMBER_MAX: Final = 1000  # characters; `int` refuses more than 4300 digits with an error of its own
_DOUBLE: Final = r"[+-]?(NaN|Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)[dDfF]?"


def parse(name: str, text: str, type_: Type) -> Any:
    """Return the value of `text`; raise ConfigError with Kafka's message."""
    trimmed = text.strip()
    if type_ is Type.STRING or type_ is Type.CLASS:
        return trimmed
    if type_ is Type.LIST:
        return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
    if type_ is Type.PASSWORD:
        return Password(trimmed)
    if type_ is Type.BOOLEAN:
        lowered = trimmed.lower()
        if lowered not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return lowered == "true"
    if type_ is Type.DOUBLE:
        return _parse_double(name, text, trimmed)
    half = 1 << (_BITS[type_] - 1)
    if len(trimmed) > _NUMBER_MAX or not re.fullmatch(_INTEGER, trimmed) or not -half <= int(trimmed) < half:
        raise invalid(name, text, f"Not a number of type {type_.name}")
    return int(trimmed)


def to_text(value: Any, type_: Type) -> str | None:
    """Return a value as Kafka writes it (a password in clear: callers hide it)."""
    if value is None:
        return None
    if type_ is Type.BOOLEAN:
        return "true" if value else "false"
    if type_ is Type.LIST:
        return ",".join(value)
    if type_ is Type.DOUBLE:
        return _double_to_text(value)
    if type_ is Type.PASSWORD:
        return str(value.value)
    return str(value)


def invalid(name: str, value: object, why: str) -> ConfigError:
    """Build the error for a value that is not allowed."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}")


def _parse_double(name: str, text: str, trimmed: str) -> float:
    if len(trimmed) > _NUMBER_MAX or not re.fullmatch(_DOUBLE, trimmed):
        raise invalid(name, text, "Not a number of type DOUBLE")
    digits = trimmed.rstrip("dDfF") if not trimmed.endswith("Infinity") else trimmed
    return float(digits.replace("Infinity", "inf"))


def _double_to_text(value: float) -> str:
    """Write a double as Java does: 0.5, 1.0, 1.7976931348623157E308."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    mantissa, exponent = f"{value!r}e0".split("e")[:2] if "e" in repr(value) else _scientific(value)
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(value: float) -> tuple[str, str]:
    digits = repr(value).rstrip("0").rstrip(".").lstrip("-").replace(".", "").lstrip("0")
    exponent = math.floor(math.log10(abs(value)))
    mantissa = digits[0] + "." + (digits[1:].rstrip("0") or "0")
    return ("-" if value < 0 else "") + mantissa, str(exponent)
