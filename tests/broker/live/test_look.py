"""The query of /live.json, and the addresses of other pages.

Tests look.py and peers.py of broker/live, and barnabas/common/pages/page_addresses.py.
"""

from __future__ import annotations

import json

import pytest

from barnabas.broker.live.look import Look, collect, json_page
from barnabas.broker.live.peers import peers
from barnabas.common.clock import FakeClock, MovedClock
from barnabas.config.config import BROKER, Config
from barnabas.config.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "limit"), [("", 50), ("7", 7), ("0", 1), ("99999", 1000), ("-3", 50), ("many", 50), ("²", 50)]
)
def test_limits(text: str, limit: int) -> None:
    look = Look.of({"limit": text}, FakeClock())
    assert look.limit == limit
    assert len(look.some(range(2000))["items"]) == limit
    assert look.some(range(2000))["total"] == 2000


def test_only_requested_sections_are_computed() -> None:
    asked: list[str] = []
    sections = {name: lambda _look, name=name: asked.append(name) for name in ("node", "groups", "partitions")}
    collect(sections, Look.of({"section": "groups,unknown"}, FakeClock()))
    assert asked == ["node", "groups"]
    asked.clear()
    collect(sections, Look.of({}, FakeClock()))
    assert asked == ["node", "groups", "partitions"]


def test_empty_parameters_are_none() -> None:
    look = Look.of({"topic": "", "group": ""}, FakeClock())
    assert (look.topic, look.group) == (None, None)


def test_ages() -> None:
    clock = FakeClock()
    begun_ns = clock.monotonic_ns()
    clock.advance_ns(1_234_567)
    assert Look.of({}, clock).ms_since(begun_ns) == 1.235
    assert Look.of({}, clock).ms_since(begun_ns + 10**9) == 0.0


class RestlessClock(FakeClock):
    """A clock on which a millisecond ends between any two readings."""

    def wall_ms(self) -> int:
        self.advance_ms(1)
        return super().wall_ms()


def test_a_clock_that_was_not_moved_is_not_ahead() -> None:
    clock = RestlessClock()
    assert Look.of({}, clock, MovedClock(clock)).clock_offset_ms == 0
    look = Look.of({}, clock, MovedClock(clock, 5000))
    assert (look.clock_offset_ms, look.wall_ms) == (5000, clock._wall_ns // 1_000_000 + 5000)


def test_the_page_is_json_without_caching() -> None:
    page = json_page({"a": "<b>"})
    assert json.loads(page.body) == {"a": "<b>"}
    assert page.content_type.startswith("application/json")
    assert ("Cache-Control", "no-store") in page.headers


def test_peers() -> None:
    listed = peers(["controller-100=h:1", "broker-1=h:3", "broker-0=[::1]:2"], "broker", 1)
    assert [(peer["role"], peer["id"], peer["address"], peer["is_self"]) for peer in listed] == [
        ("broker", 0, "[::1]:2", False),
        ("broker", 1, "h:3", True),
        ("controller", 100, "h:1", False),
    ]


@pytest.mark.parametrize("text", ["0=h:1", "broker-x=h:1", "broker-0=h", "broker-0=http://h:1", "broker-0=h:1 x"])
def test_invalid_addresses_are_refused_at_start(text: str) -> None:
    properties = {
        "node.id": "0",
        "controller.quorum.bootstrap.servers": "c:1",
        "controller.listener.names": "C",
        "barnabas.live.peers": text,
    }
    with pytest.raises(ConfigError, match=r"barnabas\.live\.peers.*ROLE-ID=HOST:PORT|broker-ID=HOST:PORT"):
        Config.from_properties(properties, BROKER)
