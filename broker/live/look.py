"""One look into a process: when, how much is told, of what; and the page that tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.common.clock import NS_PER_MS, Clock
from barnabas.common.live_shape import LIMIT_DEFAULT, LIMIT_MAX, Listed
from barnabas.metrics.http import Page

T = TypeVar("T")

JSON: Final = "application/json; charset=utf-8"
HEADERS: Final = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
_ALWAYS: Final = frozenset({"schema", "at_ms", "node"})


class Look(NamedTuple):
    """See `live_shape` for the parameters."""

    now_ns: int
    now_ms: int  # of the same clock
    wall_ms: int
    limit: int = LIMIT_DEFAULT
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    sections: frozenset[str] = frozenset()  # none: all

    @classmethod
    def of(cls, query: Mapping[str, str], clock: Clock) -> Look:
        """Read the query; what makes no sense counts as not given."""
        now_ns = clock.monotonic_ns()
        limit, partition = query.get("limit", ""), query.get("partition", "")
        return cls(
            now_ns,
            now_ns // NS_PER_MS,
            clock.wall_ms(),
            max(1, min(LIMIT_MAX, int(limit))) if _is_number(limit) else LIMIT_DEFAULT,
            query.get("topic") or None,
            int(partition) if _is_number(partition) else None,
            query.get("group") or None,
            frozenset(name for name in query.get("section", "").split(",") if name),
        )

    def wants(self, section: str) -> bool:
        """Whether a key of the answer is asked for."""
        return not self.sections or section in self.sections or section in _ALWAYS

    def ms_since(self, ns: int) -> float:
        """Milliseconds since a monotonic time, to the microsecond."""
        return round(max(0, self.now_ns - ns) / NS_PER_MS, 3)

    def some(self, items: Sequence[T], total: int | None = None) -> Listed:
        """The first items, and how many there are."""
        return {"total": len(items) if total is None else total, "items": list(items[: self.limit])}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


Section = Callable[[Look], Any]


def told(sections: Mapping[str, Section], look: Look) -> Any:
    """An answer: the sections that are asked for, each looked at now."""
    return {name: tell(look) for name, tell in sections.items() if look.wants(name)}


def json_page(answer: Mapping[str, Any]) -> Page:
    """The page of an answer."""
    return Page(json.dumps(answer, separators=(",", ":")).encode(), JSON, headers=HEADERS)
