"""Validators: the bounds and choices of the values in the table's rows.

A validator is called with the key's name and the parsed value. It raises ConfigError with Kafka's message.
`str(validator)` is Kafka's notation (`[1,...]`, `[a, b]`), which the reference list of keys uses as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from barnabas.config.durations import parse_duration_ms
from barnabas.config.errors import ConfigError
from barnabas.config.types import invalid

#: The prefix of a `share.auto.offset.reset` with a duration.
BY_DURATION: Final = "by_duration:"

# Patterns are compiled at their first use, not at the start.
_THROTTLED: Final = r"([0-9]+:[0-9]+)?"
_PAGE_ADDRESS: Final = r"(broker|controller)-\d{1,9}=[^\s/=]+:\d{1,5}"


class Validator:
    """A check with its notation."""

    __slots__ = ("_check", "notation")

    def __init__(self, notation: str, check: Callable[[str, Any], None]) -> None:
        self.notation = notation
        self._check = check

    def __call__(self, name: str, value: Any) -> None:
        self._check(name, value)

    def __str__(self) -> str:
        return self.notation


@cache
def between(low: float | None, high: float | None) -> Validator:
    """A number within inclusive bounds; None is no bound."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise invalid(name, None, "Value must be non-null")
        if low is not None and value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return Validator(f"[{low},...]" if high is None else f"[{low},...,{high}]", check)


def at_least(low: float) -> Validator:
    """A number of `low` or more."""
    return between(low, None)


@cache
def one_of(*choices: str) -> Validator:
    """One of some words."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise invalid(name, value, f"String must be one of: {', '.join(choices)}")

    return Validator(f"[{', '.join(choices)}]", check)


@cache
def one_of_any_case(*choices: str) -> Validator:
    """One of some words, in any case."""

    def check(name: str, value: Any) -> None:
        if value is None or value.upper() not in {choice.upper() for choice in choices}:
            raise invalid(name, value, f"String must be one of (case insensitive): {', '.join(choices)}")

    return Validator(f"(case insensitive) [{', '.join(choices)}]", check)


@cache
def list_of(*choices: str, empty: bool = True, null: bool = False, notation: str | None = None) -> Validator:
    """A list of items that are not empty; of the given words only, if any are given."""
    shown = f"[{', '.join(choices)}]" if choices else ""

    def check(name: str, value: Any) -> None:
        if value is None:
            if not null:
                raise ConfigError(f"Configuration '{name}' values must not be null.")
            return
        if not value and not empty:
            allowed = shown or "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {allowed}")
        for item in value:
            if not item:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if choices and item not in choices:
                raise invalid(name, item, f"String must be one of: {', '.join(choices)}")

    return Validator(shown if notation is None else notation, check)


def _check_gzip_level(name: str, value: Any) -> None:
    if value != -1 and not 1 <= value <= 9:
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


def _check_non_empty(name: str, value: Any) -> None:
    if value is not None and not value:
        raise invalid(name, value, "String must be non-empty")


def _check_non_empty_list(name: str, value: Any) -> None:
    if value and any(not item for item in value):
        raise ConfigError(f"Configuration '{name}' values must not be empty.")


def _check_non_null(name: str, value: Any) -> None:
    if value is None:
        raise invalid(name, value, "entry must be non null")


def _check_throttled(name: str, value: Any) -> None:
    if not value or value == ("*",):
        return
    if not all(re.fullmatch(_THROTTLED, item) for item in value):
        raise invalid(
            name,
            f"[{', '.join(value)}]",
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def _check_page_addresses(name: str, value: Any) -> None:
    for item in value or ():
        if not re.fullmatch(_PAGE_ADDRESS, item):
            raise invalid(name, item, "Value must be broker-ID=HOST:PORT or controller-ID=HOST:PORT")


def _check_offset_reset(name: str, value: Any) -> None:
    if value in ("latest", "earliest"):
        return
    duration_ms = parse_duration_ms(value.removeprefix(BY_DURATION)) if value.startswith(BY_DURATION) else None
    if duration_ms is None or duration_ms < 0:
        text = (
            f"Invalid value `{value}` for configuration {name}. The value must be either 'earliest', 'latest' or of "
            "the format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise invalid(name, value, text)


GZIP_LEVEL: Final = Validator("[1,...,9] or -1", _check_gzip_level)
NON_EMPTY: Final = Validator("non-empty string", _check_non_empty)
NON_EMPTY_LIST: Final = Validator("non-empty list", _check_non_empty_list)
NON_NULL: Final = Validator("non-null string", _check_non_null)
THROTTLED_REPLICAS: Final = Validator("[partitionId]:[brokerId],[partitionId]:[brokerId],...", _check_throttled)
PAGE_ADDRESSES: Final = Validator("ROLE-ID=HOST:PORT, ...", _check_page_addresses)
OFFSET_RESET: Final = Validator("[latest, earliest, by_duration:PnDTnHnMn.nS]", _check_offset_reset)
