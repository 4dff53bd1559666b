"""One look into a process: its time and its query; and the page of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from barnabas.common.clock import NS_PER_MS, Clock, MovedClock
from barnabas.common.pages.live_constants import LIMIT_DEFAULT, LIMIT_MAX
from barnabas.common.pages.page import Page

if TYPE_CHECKING:
    from barnabas.common.pages.live_shape import Listed

T = TypeVar("T")

JSON: Final = "application/json; charset=utf-8"
HEADERS: Final = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
_ALWAYS: Final = frozenset({"schema", "at_ms", "node"})


class Look(NamedTuple):
    """The parameters of a query (see `live_shape`), with the time of the look."""

    now_ns: int
    now_ms: int  # of the same clock
    wall_ms: int  # of the clock that groups and transactions see, which may be moved
    limit: int = LIMIT_DEFAULT
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    sections: frozenset[str] = frozenset()  # none: all
    clock_offset_ms: int = 0  # by how much `wall_ms` is ahead of the machine's time

    @classmethod
    def of(cls, query: Mapping[str, str], clock: Clock, moved_clock: Clock | None = None) -> Look:
        """Return the look for a query, with the wall time of `moved_clock`. Invalid values count as not given."""
        now_ns = clock.monotonic_ns()
        # Why not by reading both clocks: between two readings a millisecond may begin, and nothing was moved.
        offset_ms = moved_clock.offset_ms if isinstance(moved_clock, MovedClock) else 0
        limit, partition = query.get("limit", ""), query.get("partition", "")
        return cls(
            now_ns,
            now_ns // NS_PER_MS,
            clock.wall_ms() + offset_ms,
            max(1, min(LIMIT_MAX, int(limit))) if _is_number(limit) else LIMIT_DEFAULT,
            query.get("topic") or None,
            int(partition) if _is_number(partition) else None,
            query.get("group") or None,
            frozenset(name for name in query.get("section", "").split(",") if name),
            offset_ms,
        )

    def wants(self, section: str) -> bool:
        """Whether the query asks for a key of the answer."""
        return not self.sections or section in self.sections or section in _ALWAYS

    def ms_since(self, ns: int) -> float:
        """Return the milliseconds since a monotonic time, to the microsecond."""
        return round(max(0, self.now_ns - ns) / NS_PER_MS, 3)

    def some(self, items: Sequence[T], total: int | None = None) -> Listed:
        """Return the first items, with the total number."""
        return {"total": len(items) if total is None else total, "items": list(items[: self.limit])}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


Section = Callable[[Look], Any]


def collect(sections: Mapping[str, Section], look: Look) -> Any:
    """Return the answer: the sections that the query asks for, each computed now."""
    return {name: section(look) for name, section in sections.items() if look.wants(name)}


def json_page(answer: Mapping[str, Any]) -> Page:
    """Return the page of an answer."""
    return Page(json.dumps(answer, separators=(",", ":")).encode(), JSON, headers=HEADERS)
