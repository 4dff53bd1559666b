"""`barnabas top`: a live view of the brokers' threads, queues, requests and partitions.

On a terminal it fills the screen until `q` or Ctrl-C. Into a pipe it prints one plain frame after another. A frame
compares two samples (`inside.top_frame`), so the first one appears one interval after the start.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.errors import UserError
from barnabas.cli.inside.finder import PageFinder
from barnabas.cli.inside.pages import BROKER, TIMEOUT_S, Page, find_pages, page_options, read_pages
from barnabas.cli.inside.top_frame import Frame, Sample, make_frame
from barnabas.cli.inside.top_view import Line, lines
from barnabas.common.clock import SystemClock
from barnabas.common.pages.live_constants import LIMIT_MAX
from barnabas.common.pages.page_access import Access

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SECTIONS = "node,processors,request_queue,handlers,purgatories,elsewhere,requests,events,brokers,quorum"
ITEMS = 20  # of a list: the oldest come first
INTERVAL_S = 2.0
QUIT = "q"
WIDTH_PLAIN = 120


@click.command()
@click.option("--broker", "chosen", type=click.IntRange(0), multiple=True, metavar="ID", help="Only this broker.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.1, 3600),
    default=INTERVAL_S,
    show_default=True,
    help="Seconds between frames.",
)
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print each frame as one line of JSON.")
@page_options
def top(
    chosen: tuple[int, ...],
    interval_s: float,
    once: bool,
    as_json: bool,
    bootstrap: str,
    page: str | None,
    access: Access,
) -> None:
    """Watch the queues, purgatories, requests and partitions of the cluster; `q` quits."""
    finder = PageFinder(lambda: _watched(find_pages(bootstrap, page, access), chosen), SystemClock())
    # Why bounded by the interval: a process that hangs must not delay the others' data.
    frames = _frames(finder, min(TIMEOUT_S, max(1.0, interval_s)))
    if as_json or once or not sys.stdout.isatty():
        _print(frames, interval_s, once=once, as_json=as_json)
    else:
        _show(frames, interval_s)


def _watched(pages: Sequence[Page], chosen: Sequence[int]) -> list[Page]:
    """The pages of the chosen brokers and of the controller."""
    known = [page.id for page in pages if page.role == BROKER]
    for broker in chosen:
        if broker not in known:
            raise UserError(f"no broker {broker} is known; the brokers are {', '.join(map(str, sorted(known)))}")
    return [page for page in pages if page.role != BROKER or not chosen or page.id in chosen]


def _frames(finder: PageFinder, timeout_s: float) -> Iterator[Frame | None]:
    """Yield None first, since there is nothing to compare with, then a frame for each turn.

    Raises UserError if no broker answers the first time.
    """
    before = None
    while True:
        now = _sample(finder.pages(), timeout_s)
        if before is None and not now.brokers:
            raise UserError("; ".join(f"broker {broker}: {problem}" for broker, problem in now.unreachable.items()))
        yield None if before is None else make_frame(before, now)
        finder.find_again(is_one_silent=bool(now.unreachable))
        before = now


def _sample(pages: Sequence[Page], timeout_s: float) -> Sample:
    answers = read_pages(pages, {"section": SECTIONS, "limit": ITEMS}, timeout_s)
    brokers = answers.brokers()
    # Why a second request: there can be many partitions, and they need another limit than the other lists.
    answering = [page for page in answers.found if page.role == BROKER]
    partitions = read_pages(answering, {"section": "partitions", "limit": LIMIT_MAX}, timeout_s).brokers()
    whole = {broker: {**live, **partitions[broker]} for broker, live in brokers.items() if broker in partitions}
    return Sample(whole, answers.unreachable_brokers(), answers.controllers())


# --- into a pipe


def _print(frames: Iterator[Frame | None], interval_s: float, *, once: bool, as_json: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for frame in frames:
        if frame is not None:
            if as_json:
                print(json.dumps(frame.as_json()), flush=True)
            else:
                width = console.width if console.is_terminal else WIDTH_PLAIN
                for line in lines(frame, width):
                    console.print(_styled(line))
                sys.stdout.flush()
            if once:
                return
            if not as_json:
                print()
        select.select([], [], [], interval_s)


# --- on a terminal


def _show(frames: Iterator[Frame | None], interval_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    hint = f"every {interval_s:g} s, {QUIT} quits"
    with _keys() as is_quit, Live(Text("waiting …"), console=console, screen=True, auto_refresh=False) as screen:
        for frame in frames:
            if frame is not None:
                screen.update(Group(*map(_styled, _fitting(frame, console, hint))), refresh=True)
            if is_quit(interval_s):
                return


def _fitting(frame: Frame, console: Console, hint: str) -> list[Line]:
    return lines(frame, console.width, console.height, hint)


def _styled(line: Line) -> Text:
    from rich.text import Text

    return Text(line.text, style=line.style, no_wrap=True, overflow="ellipsis")


class _Keys:
    """Waits for a key."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def __call__(self, wait_s: float) -> bool:
        """Wait that long for a key; return whether it is `q` (or the end of input)."""
        watched = [] if self._descriptor is None else [self._descriptor]
        ready, _, _ = select.select(watched, [], [], wait_s)
        return bool(ready) and sys.stdin.read(1).lower() in (QUIT, "")


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Read keys as they are pressed, without Enter, if stdin is a terminal."""
    if not sys.stdin.isatty():
        yield _Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
