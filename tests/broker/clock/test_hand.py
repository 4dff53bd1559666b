"""The hand on a node's clock: /clock, what it refuses, and the file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.clock.hand import OFFSET_MS_MAX, ClockHand
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.pages.page import ResourceRequest
from barnabas.config.errors import ConfigError

FILE = "/d/clock"
WALL_MS = 1_700_000_000_000


class FakePart:
    """A part that notes what it is told."""

    def __init__(self) -> None:
        self.moves: list[bool] = []
        self.work: list[str] = []
        self.left: list[str] = []
        self.due_ms: int | None = None

    def moved(self, *, is_last: bool) -> None:
        self.moves.append(is_last)

    def busy(self) -> Sequence[str]:
        return self.work

    def unfinished(self, *, is_calm: bool) -> Sequence[str]:
        return self.left if is_calm else ()

    def next_due_ms(self) -> int | None:
        return self.due_ms


def make_hand(fs: MemoryFileSystem | None = None, file: str = "", port: int = 0) -> ClockHand:
    config: Any = SimpleNamespace(node_id=3, barnabas_metrics_port=port, barnabas_clock_file=file)
    return ClockHand(config, FakeClock(WALL_MS), fs or MemoryFileSystem())


def ask(hand: ClockHand, method: str, body: object = None, path: str = "") -> tuple[str, dict[str, Any]]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    page = hand.respond("broker", ResourceRequest(method, path, {}, content))
    return page.status[:3], json.loads(page.body)


def test_the_clock_moves_and_every_part_is_woken() -> None:
    hand, part = make_hand(), FakePart()
    hand.parts.append(part)
    part.work, part.due_ms = ["log-retention"], hand.clock.monotonic_ms() + 1500
    expected = {"node": 3, "role": "broker", "now_ms": WALL_MS, "offset_ms": 0, "busy": ["log-retention"]}
    assert ask(hand, "GET") == ("200", {**expected, "next_due_in_ms": 1500})
    status, answer = ask(hand, "POST", {"offset_ms": 1000})
    assert (status, answer["now_ms"], answer["offset_ms"], answer["next_due_in_ms"]) == (
        "200",
        WALL_MS + 1000,
        1000,
        500,
    )
    ask(hand, "POST", {"offset_ms": 1000, "is_last": True})
    assert part.moves == [False, True]


def test_an_answer_to_a_move_waits_for_work_that_ends_soon() -> None:
    hand, part = make_hand(), FakePart()
    hand.parts.append(part)
    looks = 0

    def busy() -> list[str]:
        nonlocal looks
        looks += 1
        return ["groups"] if looks < 3 else []

    part.busy = busy  # type: ignore[method-assign]
    assert ask(hand, "POST", {"offset_ms": 1})[1]["busy"] == []
    assert looks == 4


def test_what_is_left_to_others_counts_once_nothing_is_busy() -> None:
    hand, part = make_hand(), FakePart()
    hand.parts.append(part)
    part.work, part.left = ["scheduler"], ["writes"]
    assert hand.state()["busy"] == ["scheduler"]
    part.work = []
    assert hand.state()["busy"] == ["writes"]


def test_a_clock_does_not_go_back() -> None:
    hand = make_hand()
    ask(hand, "POST", {"offset_ms": 1000})
    status, answer = ask(hand, "POST", {"offset_ms": 999})
    assert (status, answer["error"][:26]) == ("400", "a clock does not go back: ")
    assert ask(hand, "DELETE")[0] == "405"
    assert hand.clock.offset_ms == 1000


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"", None, [], {}, {"offset_ms": "1"}, {"offset_ms": True}, {"offset_ms": 1.5}, {"offset_ms": -1},
        {"offset_ms": OFFSET_MS_MAX + 1}, {"offset_ms": 1, "is_last": 1}, {"offset_ms": 1, "other": 1}, b"\xff",
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_mistake_moves_nothing(body: object) -> None:
    hand, part = make_hand(), FakePart()
    hand.parts.append(part)
    status, answer = ask(hand, "POST", body)
    assert (status, list(answer)) == ("400", ["error"])
    assert (hand.clock.offset_ms, part.moves) == (0, [])


def test_nothing_is_below() -> None:
    assert ask(make_hand(), "GET", path="x")[0] == "404"


def test_the_file_keeps_the_offset() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    hand = make_hand(fs, FILE)
    ask(hand, "POST", {"offset_ms": 5000})
    assert fs.read_bytes(FILE) == b"5000\n"
    assert [entry.name for entry in fs.listdir("/d")] == ["clock"]
    assert make_hand(fs, FILE).clock.wall_ms() == WALL_MS + 5000


def test_a_move_that_cannot_be_kept_is_refused() -> None:
    hand = make_hand(MemoryFileSystem(), "/missing/clock")
    status, answer = ask(hand, "POST", {"offset_ms": 5000})
    assert (status, hand.clock.offset_ms) == ("400", 0)
    assert answer["error"].startswith("/missing/clock cannot be written")


def test_a_walk_is_two_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    hand = make_hand()
    for offset_ms in (0, 1000, 60_000, 604_800_000):
        ask(hand, "POST", {"offset_ms": offset_ms})
    for _ in range(2):
        ask(hand, "POST", {"offset_ms": 604_800_000, "is_last": True})
    assert [record.getMessage() for record in caplog.records] == [
        "The clock is moved on purpose",
        "The clock is ahead by 7 d 0 h: it was moved on purpose",
    ]


def test_a_process_that_starts_while_others_are_moved_is_not_behind() -> None:
    fs, part = MemoryFileSystem(), FakePart()
    fs.mkdir("/d")
    starting, other = make_hand(fs, FILE), make_hand(fs, FILE)
    starting.parts.append(part)
    starting.catch_up()
    assert (starting.clock.offset_ms, part.moves) == (0, [])
    ask(other, "POST", {"offset_ms": 5000})
    starting.catch_up()
    assert (starting.clock.offset_ms, part.moves) == (5000, [False])


@pytest.mark.parametrize("content", [b"", b"-1", b"x", b"9" * 30, b"0" * 20 + b"9" * 20, b"9" * 5000, b"\xff"])
def test_another_file_is_refused(content: bytes) -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    fs.write_bytes(FILE, content, sync=False)
    with pytest.raises(ConfigError, match="holds no offset in ms"):
        make_hand(fs, FILE)


def test_it_needs_a_page() -> None:
    with pytest.raises(ConfigError, match=r"barnabas\.clock\.enable needs barnabas\.metrics\.port"):
        make_hand(port=-1)
