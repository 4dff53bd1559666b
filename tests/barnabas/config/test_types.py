"""Types: texts are parsed to values, and values written as texts."""

from __future__ import annotations

import math

import pytest

from barnabas.config.errors import ConfigError
from barnabas.config.types import Password, Type, parse, to_text


@pytest.mark.parametrize(
    ("type_", "text", "value", "back"),
    [
        (Type.BOOLEAN, " TRUE ", True, "true"),
        (Type.INT, "+7", 7, "7"),
        (Type.LONG, "-9223372036854775808", -(2**63), "-9223372036854775808"),
        (Type.SHORT, "32767", 32767, "32767"),
        (Type.DOUBLE, "0.5", 0.5, "0.5"),
        (Type.DOUBLE, "1", 1.0, "1.0"),
        (Type.DOUBLE, ".25e1f", 2.5, "2.5"),
        (Type.DOUBLE, "1e10", 1e10, "1.0E10"),
        (Type.DOUBLE, "0.00012", 0.00012, "1.2E-4"),
        (Type.DOUBLE, "12345678.5", 12345678.5, "1.23456785E7"),
        (Type.DOUBLE, "-1.7976931348623157E308", -1.7976931348623157e308, "-1.7976931348623157E308"),
        (Type.DOUBLE, "Infinity", math.inf, "Infinity"),
        (Type.LIST, " a , b,c ", ("a", "b", "c"), "a,b,c"),
        (Type.LIST, " ", (), ""),
        (Type.STRING, " x y ", "x y", "x y"),
        (Type.CLASS, "org.example.X", "org.example.X", "org.example.X"),
        (Type.PASSWORD, "s3cret", Password("s3cret"), "s3cret"),
    ],
)
def test_parse_and_write(type_: Type, text: str, value: object, back: str) -> None:
    assert parse("k", text, type_) == value
    assert to_text(value, type_) == back
    assert to_text(None, type_) is None


def test_passwords_are_not_shown() -> None:
    assert "s3cret" not in f"{Password('s3cret')!r} {Password('s3cret')}"


@pytest.mark.parametrize("type_", [Type.INT, Type.LONG, Type.DOUBLE])
@pytest.mark.parametrize("text", ["1" * 32_000, "1" * 32_000 + "x", "0" * 5000 + "1", "1." + "1" * 32_000 + "e"])
def test_numbers_that_are_too_long_are_refused_quickly(type_: Type, text: str) -> None:
    """A backtracking pattern would take seconds for some; `int` refuses others with an error of its own."""
    with pytest.raises(ConfigError, match="Not a number"):
        parse("k", text, type_)
