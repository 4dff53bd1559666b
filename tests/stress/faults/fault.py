"""One fault of a stress run: what it impairs, how it begins and how it is undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Link = tuple[int, int]  # from, to


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can be caused and undone."""

    description: str
    impaired: frozenset[int | Link]  # nodes and links that no other fault may impair at the same time
    begin: Callable[[], None]
    end: Callable[[], None]
    is_exclusive: bool = False  # no other fault may be active at the same time
