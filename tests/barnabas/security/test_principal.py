"""Principals are split as Kafka's SecurityUtils splits them."""

from __future__ import annotations

import pytest

from barnabas.security.principal import Principal, parse_principal, user


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("User:alice", ("User", "alice")),
        ("User:", ("User", "")),
        ("User:a:b", ("User", "a:b")),
        (":x", ("", "x")),
        ("User:CN=a,O=b", ("User", "CN=a,O=b")),
    ],
)
def test_a_principal_is_split_at_its_first_colon(text: str, parts: tuple[str, str]) -> None:
    principal = parse_principal(text)
    assert principal == Principal(*parts)
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "User"])
def test_text_without_a_colon_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^expected a string in format principalType:principalName but got {text}$"):
        parse_principal(text)


def test_a_user() -> None:
    assert user("alice") == "User:alice"
