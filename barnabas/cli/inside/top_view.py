"""Formats a frame of `barnabas top` as lines that fit a terminal. Pure functions; styles are rich's names."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from barnabas.cli.inside.top_frame import BrokerRow, Frame, PartitionRow, QuorumRow, RequestRow, WaitRow
from barnabas.common.pages.live_constants import STATIONS
from barnabas.common.pages.phrases import count, duration

HEADER: Final = "bold"
BAD: Final = "bold red"
ATTENTION: Final = "yellow"
PLAIN: Final = ""
IDLE_MIN: Final = 0.3  # share of time; Kafka's documentation recommends more than that
SENTENCE_LINES: Final = 2
STATION_NAMES: Final = ("queue", "local", "parked", "quota", "resp.q", "send")
ROWS_PLAIN: Final = 10


class Line(NamedTuple):
    """A line of the screen."""

    text: str
    style: str = PLAIN


Block = list[Line]


def lines(frame: Frame, width: int, height: int | None = None, hint: str = "") -> list[Line]:
    """The lines of a frame: at most `height` (None: 10 rows a section), each at most `width` characters."""
    brokers = [_broker(row) for row in frame.brokers]
    available = None if height is None else max(0, height - len(_title(frame, hint)))
    sections: list[tuple[str, list[Block]]] = [
        (_BROKER_HEADER, brokers),
        (_QUORUM_HEADER, [[_member(row)] for row in frame.quorum]),
        (_REQUEST_HEADER, [[_request(row)] for row in frame.requests]),
        ("what waits, the oldest of each purgatory", [_wait(row, width) for row in frame.waits]),
        (_PARTITION_HEADER, [[_partition(row)] for row in frame.partitions]),
    ]
    shares = _shares([[len(block) for block in blocks] for _, blocks in sections], available)
    shown = _title(frame, hint)
    for (header, blocks), share in zip(sections, shares, strict=True):
        if blocks and share:
            shown.append(Line(""))
            shown.append(Line(header, HEADER))
            shown += [line for block in blocks[:share] for line in block]
            if share < len(blocks) and height is None:
                shown.append(Line(f"and {len(blocks) - share} more"))
    return [Line(_cut(line.text, width), line.style) for line in shown[:height]]


def _shares(sizes: Sequence[Sequence[int]], available: int | None) -> list[int]:
    """How many blocks of each section are shown: one of each in turn, while lines are available."""
    if available is None:
        return [min(len(blocks), ROWS_PLAIN) for blocks in sizes]
    shares = [0] * len(sizes)
    is_growing = True
    while is_growing:
        is_growing = False
        for index, blocks in enumerate(sizes):
            if shares[index] == len(blocks):
                continue
            needed = blocks[shares[index]] + (0 if shares[index] else 2)  # the first one needs a header
            if needed <= available:
                available -= needed
                shares[index] += 1
                is_growing = True
    return shares


def _title(frame: Frame, hint: str) -> list[Line]:
    time = datetime.fromtimestamp(frame.at_ms / 1000).strftime("%H:%M:%S")
    alive = sum(not row.problem for row in frame.brokers)
    parts = [f"barnabas top {time}", f"{alive} of {count(len(frame.brokers), 'broker')}"]
    if frame.clock_offset_ms:
        parts.append(f"clock moved {duration(frame.clock_offset_ms)} ahead")
    if hint:
        parts.append(hint)
    controller = frame.controller
    if controller is not None:
        text = f"controller {controller.controller}: {count(controller.events, 'event')} queued"
        if controller.fenced:
            text += f", {count(controller.fenced, 'broker')} fenced"
        parts.append(text)
    parts.append(f"cluster {frame.cluster_id}")
    return [Line("  ".join(parts), HEADER)]


_BROKER_HEADER: Final = (
    f"{'broker':<7}{'state':<11}{'conns':>6}{'net idle':>9}{'req queue':>11}{'busy':>7}{'idle':>6}{'resp.q':>8}"
    f"{'parked':>8}{'req/s':>7}"
)
_QUORUM_HEADER: Final = f"{'quorum':<7}{'role':<13}{'epoch':>6}{'vote':>6}{'log end':>11}{'behind':>8}  because"
_REQUEST_HEADER: Final = f"{'mean ms':<19}{'/s':>7}" + "".join(f"{name:>8}" for name in STATION_NAMES) + f"{'':>1}total"
_PARTITION_HEADER: Final = (
    f"{'partition':<31}{'leader':>7}{'records/s':>11}{'log end':>11}{'above hw':>10}{'in sync':>10}"
)


def _broker(row: BrokerRow) -> Block:
    if row.problem:
        return [Line(f"{row.broker:<7}{row.problem}", BAD)]
    is_full = 0 < row.capacity <= row.queued
    style = PLAIN
    if is_full or row.handlers_idle < IDLE_MIN or row.network_idle < IDLE_MIN:
        style = BAD if is_full else ATTENTION
    elif row.state != "running":
        style = ATTENTION
    queue = f"{row.queued}/{row.capacity}"
    busy = f"{row.busy}/{row.handlers}"
    return [
        Line(
            f"{row.broker:<7}{row.state[:10]:<11}{row.connections:>6}{_percent(row.network_idle):>9}{queue:>11}{busy:>7}"
            f"{_percent(row.handlers_idle):>6}{row.answered:>8}{row.parked:>8}{_rate(row.per_second):>7}",
            style,
        )
    ]


def _member(row: QuorumRow) -> Line:
    vote = "-" if row.voted is None else row.voted
    behind = "-" if row.behind < 0 else row.behind
    style = PLAIN if row.role in ("leader", "follower") and row.behind <= 0 else ATTENTION
    return Line(
        f"{row.controller:<7}{row.role:<13}{row.epoch:>6}{vote:>6}{row.log_end_offset:>11}{behind:>8}  {row.reason}",
        style,
    )


def _request(row: RequestRow) -> Line:
    times = "".join(f"{_ms(row.times_ms[station]):>8}" for station in STATIONS)
    return Line(f"{row.api[:18]:<19}{_rate(row.per_second):>7}{times}{_ms(row.total_ms):>6}")


def _wait(row: WaitRow, width: int) -> Block:
    head = f"{row.purgatory} of broker {row.broker}: {count(row.operations, 'waits', 'wait')}, the oldest for "
    head += f"{duration(row.oldest_ms)}:"
    indent = "  "
    sentence = textwrap.wrap(row.sentence, max(20, width - len(indent)))
    if len(sentence) > SENTENCE_LINES:
        sentence = [*sentence[: SENTENCE_LINES - 1], f"{sentence[SENTENCE_LINES - 1]} …"]
    return [Line(head), *(Line(indent + text) for text in sentence)]


def _partition(row: PartitionRow) -> Line:
    in_sync = f"{len(row.isr)} of {row.replica_count}"
    style = BAD if len(row.isr) < row.replica_count else ATTENTION if row.unreplicated else PLAIN
    return Line(
        f"{_cut(row.name, 30):<31}{row.leader:>7}{_rate(row.per_second):>11}{row.log_end_offset:>11}"
        f"{row.unreplicated:>10}{in_sync:>10}",
        style,
    )


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return "-"
    return f"{per_second:.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def _ms(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 0.05 else "0"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
