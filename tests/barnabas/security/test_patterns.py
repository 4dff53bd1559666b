"""Replacement as Java does it."""

from __future__ import annotations

import pytest

from barnabas.config.errors import ConfigError
from barnabas.security.patterns import compiled, is_usable, replaced


@pytest.mark.parametrize(
    ("pattern", "replacement", "name", "all_replaced", "first_replaced"),
    [
        ("a", "b", "aaca", "bbcb", "baca"),
        (".*", "x", "abc", "xx", "x"),
        ("^", "x", "ab", "xab", "xab"),
        ("$", "x", "ab", "abx", "abx"),
        ("a*", "-", "baac", "-b--c-", "-baac"),
        ("(a)(b)?", "<$1$2$0>", "aab", "<aa><abab>", "<aa>ab"),
        ("(a)", r"\$1\\$12", "a", r"$1\a2", r"$1\a2"),
        ("x", "y", "abc", "abc", "abc"),
    ],
)
def test_replacement(pattern: str, replacement: str, name: str, all_replaced: str, first_replaced: str) -> None:
    found = compiled("key", pattern)
    assert replaced(found, replacement, name) == all_replaced
    assert replaced(found, replacement, name, is_first_only=True) == first_replaced


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1"])
def test_a_pattern_that_is_not_res_is_an_error_of_its_key(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"^key: invalid pattern"):
        compiled("key", pattern)


@pytest.mark.parametrize(
    ("replacement", "groups", "expected"),
    [("$1", 1, True), ("$0", 0, True), ("$1", 0, False), (r"\$", 0, True), ("$", 1, False), ("x", 0, True)],
)
def test_dollars_name_groups(replacement: str, groups: int, expected: bool) -> None:
    assert is_usable(replacement, groups) == expected
