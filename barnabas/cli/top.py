"""`barnabas top`: a live view of what is inside the brokers.

On a terminal it fills the screen until `q` or Ctrl-C; into a pipe it prints a frame after another, plain. Frames are
made of two looks (`inside.top_frame`), so the first one comes an interval after the start.
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
from barnabas.common.live_shape import LIMIT_MAX

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SECTIONS = "node,processors,request_queue,handlers,purgatories,elsewhere,requests,events,brokers"
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
@click.option("--once", is_flag=True, help="Print one frame and end.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a frame, a line each.")
@page_options
def top(
    chosen: tuple[int, ...], interval_s: float, once: bool, as_json: bool, bootstrap: str, page: str | None
) -> None:
    """Watch the queues, purgatories, requests and partitions of the cluster; `q` quits."""
    finder = PageFinder(lambda: _watched(find_pages(bootstrap, page), chosen), SystemClock())
    # Why bounded by the interval: a process that hangs is not to hold up what the others show.
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
    """A frame at each turn; None at the first, which has nothing to compare with. Raises UserError if no broker answers
    then.
    """
    before = None
    while True:
        now = _look(finder.pages(), timeout_s)
        if before is None and not now.brokers:
            raise UserError("; ".join(f"broker {broker}: {problem}" for broker, problem in now.silent.items()))
        yield None if before is None else make_frame(before, now)
        finder.find_again(is_one_silent=bool(now.silent))
        before = now


def _look(pages: Sequence[Page], timeout_s: float) -> Sample:
    answers = read_pages(pages, {"section": SECTIONS, "limit": ITEMS}, timeout_s)
    brokers = answers.brokers()
    # Why apart: partitions can be many, and their number is not to bound how much is told of what waits.
    answering = [page for page in answers.told if page.role == BROKER]
    partitions = read_pages(answering, {"section": "partitions", "limit": LIMIT_MAX}, timeout_s).brokers()
    whole = {broker: {**live, **partitions[broker]} for broker, live in brokers.items() if broker in partitions}
    return Sample(whole, answers.silent_brokers(), answers.controller())


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
    with _keys() as is_quit, Live(Text("looking …"), console=console, screen=True, auto_refresh=False) as screen:
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
        """Wait that long; whether `q` was pressed meanwhile."""
        watched = [] if self._descriptor is None else [self._descriptor]
        ready, _, _ = select.select(watched, [], [], wait_s)
        return bool(ready) and sys.stdin.read(1).lower() in (QUIT, "")


@contextlib.contextmanager
def _keys() -> Iterator[_Keys]:
    """Take keys as they are pressed, without Enter, if somebody can press them."""
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
