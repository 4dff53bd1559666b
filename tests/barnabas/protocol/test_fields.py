from __future__ import annotations

import pytest

from barnabas.protocol.fields import INFINITY, array, int32, parse_versions, string


@pytest.mark.parametrize(("text", "bounds"), [("3", (3, 3)), ("0-7", (0, 7)), ("3+", (3, INFINITY)), ("", (0, -1))])
def test_version_ranges(text: str, bounds: tuple[int, int]) -> None:
    assert parse_versions(text) == bounds


def test_a_field_knows_its_versions() -> None:
    field = string("1-4", None, nullable="2+", tag=3, tagged="4+")
    assert [field.is_present(version) for version in range(6)] == [False, True, True, True, True, False]
    assert [field.is_nullable(version) for version in range(3)] == [False, False, True]
    assert [field.is_tagged(version) for version in (3, 4)] == [False, True]


def test_array_elements() -> None:
    assert array(int32, "0+").element == "int32"
    assert array(int32, "0+").default_value() == []
    assert array(int32, "0+", None, nullable="0+").default_value() is None
