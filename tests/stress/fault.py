"""One fault of a stress run: what is done to the cluster, and how it is undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Link = tuple[int, int]  # from, to


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that can be done and undone."""

    description: str
    impaired: frozenset[int | Link]  # nodes and links that nothing else may be done to meanwhile
    begin: Callable[[], None]
    end: Callable[[], None]
    is_exclusive: bool = False  # no other fault may be there at the same time, links included
