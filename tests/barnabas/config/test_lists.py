"""APPEND and SUBTRACT of list values, and their cost."""

from __future__ import annotations

import random

import pytest

from barnabas.config.lists import appended, subtracted


@pytest.mark.parametrize(
    ("text", "items", "more", "less"),
    [
        ("", "a", "a", ""),
        ("a", "b,c", "a,b,c", "a"),
        ("a,b", "b,a", "a,b", ""),
        ("a,,b,", "c", "a,b,c", "a,b"),
        ("a,b,a", "a", "a,b,a", "b,a"),
        ("a,b,a", "a,a,a", "a,b,a", "b"),
        ("a", "", "a,", "a"),
    ],
)
def test_append_and_subtract(text: str, items: str, more: str, less: str) -> None:
    assert appended(text, items) == more
    assert subtracted(text, items) == less


class Item(str):
    """Text that counts its comparisons."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Item.compared += 1
        return str.__eq__(self, other)


class Text(str):
    """A list value that splits into such items."""

    __slots__ = ()

    def split(self, sep: str | None = None, maxsplit: int = -1) -> list[str]:  # type: ignore[override]
        return [Item(part) for part in str.split(self, sep, maxsplit)]


def test_the_cost_is_linear() -> None:
    numbers = [str(n) for n in range(4000)]
    random.Random(1).shuffle(numbers)
    half = Text(",".join(numbers[:2000]))
    for change in (appended, subtracted):
        Item.compared = 0
        change(Text(",".join(numbers)), half)
        assert Item.compared < 20_000
