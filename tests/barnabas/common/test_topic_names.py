"""Rules for topic names."""

from __future__ import annotations

import pytest

from barnabas.common.topic_names import LENGTH_MAX, invalid_reason


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "...", "a" * LENGTH_MAX, "__consumer_offsets"])
def test_valid_names(name: str) -> None:
    assert invalid_reason(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * (LENGTH_MAX + 1), "is longer than the max allowed length 249"),
        ("a/b", "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "'ä' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "contains one or more characters other than ASCII alphanumerics"),
    ],
)
def test_invalid_names(name: str, reason: str) -> None:
    found = invalid_reason(name)
    assert found is not None
    assert reason in found
