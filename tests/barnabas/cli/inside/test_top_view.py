"""Frames of `barnabas top` as lines of a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.inside.top_frame import BrokerRow, ControllerRow, Frame, PartitionRow, QuorumRow, RequestRow, WaitRow
from barnabas.cli.inside.top_view import ATTENTION, BAD, ROWS_PLAIN, lines
from barnabas.common.pages.live_constants import STATIONS

SENTENCE = (
    "produce of client billing waits for offset 1042 of orders-3 on replica 3, whose fetcher is at 1017 and last "
    "fetched 4.1 s ago; and for offset 1042 of orders-3 on replica 2, whose fetcher is at 1016 and last fetched 3 s ago"
)


def broker(number: int, **changes: Any) -> BrokerRow:
    row = BrokerRow(number, "running", "", 11, 0.57, 1, 8, 2, 1, 0.6, 0, 2, 13.0)
    return row._replace(**changes)


def frame(brokers: int = 3, requests: int = 6, waits: int = 6, partitions: int = 40) -> Frame:
    times = dict.fromkeys(STATIONS, 12.5)
    return Frame(
        1_700_000_000_000,
        "h3zYrOmsQJqmHD2y0yjFEg",
        [broker(number) for number in range(brokers)],
        None,
        [RequestRow(f"Request{number}", 3.25, times, 75.0) for number in range(requests)],
        [WaitRow(number, "Produce", 3, 4100.0, SENTENCE) for number in range(waits)],
        [PartitionRow(f"orders-{number}", 1, 50.0, 1042, 0, [0, 1, 2], 3) for number in range(partitions)],
    )


def texts(shown: Frame, width: int = 80, height: int | None = None, hint: str = "") -> list[str]:
    return [line.text for line in lines(shown, width, height, hint)]


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("height", [1, 5, 10, 24, 60])
def test_the_lines_fit_the_terminal(width: int, height: int) -> None:
    shown = texts(frame(), width, height)
    assert len(shown) <= height
    assert all(len(text) <= width for text in shown)


def test_nothing_is_cut_at_80_columns() -> None:
    shown = texts(frame(waits=0), 80, 24, "every 2 s, q quits")
    assert not any(text.endswith("…") for text in shown[1:])
    assert shown[0].startswith("barnabas top ")
    assert "  3 of 3 brokers  every 2 s, q quits" in shown[0]


def test_every_section_is_shown_at_24_lines() -> None:
    shown = texts(frame(), 80, 24)
    assert len(shown) in (23, 24)
    for start in ("broker ", "0 ", "1 ", "2 ", "mean ms", "Request0", "what waits", "Produce of broker 0", "partition"):
        assert any(text.startswith(start) for text in shown), start
    assert any(text.startswith("orders-0") for text in shown)


def test_the_columns() -> None:
    shown = texts(frame(1, 1, 0, 1))
    assert shown[2:4] == [
        "broker state       conns net idle  req queue   busy  idle  resp.q  parked  req/s",
        "0      running        11     57 %        1/8    1/2  60 %       0       2     13",
    ]
    assert shown[5:7] == [
        "mean ms                 /s   queue   local  parked   quota  resp.q    send total",
        "Request0               3.2    12.5    12.5    12.5    12.5    12.5    12.5  75.0",
    ]
    assert shown[8:] == [
        "partition                       leader  records/s    log end  above hw   in sync",
        "orders-0                             1         50       1042         0    3 of 3",
    ]


def test_sentences_are_wrapped_and_cut() -> None:
    shown = texts(frame(0, 0, 1, 0))
    assert shown[3:] == [
        "Produce of broker 0: 3 wait, the oldest for 4.1 s:",
        "  produce of client billing waits for offset 1042 of orders-3 on replica 3,",
        "  whose fetcher is at 1017 and last fetched 4.1 s ago; and for offset 1042 of …",
    ]


def test_long_lists_are_cut_without_a_terminal() -> None:
    shown = texts(frame(partitions=ROWS_PLAIN + 3))
    assert shown[-1] == "and 3 more"
    assert "orders-9 " in shown[-2]


@pytest.mark.parametrize(
    ("changes", "style"),
    [
        ({}, ""),
        ({"queued": 8}, BAD),
        ({"handlers_idle": 0.1}, ATTENTION),
        ({"network_idle": 0.1}, ATTENTION),
        ({"state": "recovery"}, ATTENTION),
        ({"problem": "its page at h:1 does not answer"}, BAD),
    ],
)
def test_brokers_with_problems_have_a_colour(changes: dict[str, Any], style: str) -> None:
    made = frame(0)._replace(brokers=[broker(0, **changes)])
    line = lines(made, 80)[3]
    assert line.style == style
    if "problem" in changes:
        assert line.text == "0      its page at h:1 does not answer"


@pytest.mark.parametrize(
    ("changes", "style"), [({}, ""), ({"unreplicated": 3}, ATTENTION), ({"isr": [1], "unreplicated": 3}, BAD)]
)
def test_partitions_with_problems_have_a_colour(changes: dict[str, Any], style: str) -> None:
    made = frame(0, 0, 0, 1)
    made = made._replace(partitions=[made.partitions[0]._replace(**changes)])
    assert lines(made, 80)[-1].style == style


def test_the_controller_is_in_the_title() -> None:
    made = frame()._replace(controller=ControllerRow(100, 2, 0.9, 2, 1))
    assert "controller 100: 2 events queued, 1 broker fenced" in texts(made, 200)[0]


def test_the_quorum_says_why() -> None:
    rows = [
        QuorumRow(100, "leader", 7, 100, 50, 0, 0, "controllers 100, 101 voted for it"),
        QuorumRow(101, "candidate", 8, None, 50, -1, -1, "a majority would vote for it"),
    ]
    header, leader, candidate = [
        line for line in lines(frame()._replace(quorum=rows), 100) if line.text.startswith(("quorum", "10"))
    ]
    assert header.text.split() == ["quorum", "role", "epoch", "vote", "log", "end", "behind", "because"]
    assert leader.text.split(maxsplit=6) == [
        "100",
        "leader",
        "7",
        "100",
        "50",
        "0",
        "controllers 100, 101 voted for it",
    ]
    assert candidate.text.split(maxsplit=6)[3:6] == ["-", "50", "-"]
    assert (leader.style, candidate.style) == ("", "yellow")


def test_the_title_counts_brokers_that_answer() -> None:
    made = frame(0, 0, 0, 0)._replace(brokers=[broker(0, problem="gone")])
    assert "  0 of 1 broker" in texts(made)[0]
