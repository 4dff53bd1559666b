"""`--slow-motion`: the server properties that make a cluster slow, and small, enough to watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

T = TypeVar("T")

#: Milliseconds at factor 1: a client's request then takes about a second.
PAUSES_MS = {
    "barnabas.slow.motion.network.ms": 100,
    "barnabas.slow.motion.request.queue.ms": 200,
    "barnabas.slow.motion.handler.ms": 500,
    "barnabas.slow.motion.response.ms": 100,
    "barnabas.slow.motion.fetcher.ms": 500,
}
#: Likewise: from when on a request counts as slow, is logged and remembered. All those of clients are.
SLOW_MS = 300
#: Small rooms fill while one looks; and a commit waits for followers that are slow on purpose.
ROOMS = {
    "num.network.threads": "1",
    "num.io.threads": "2",
    "queued.max.requests": "8",
    "offsets.commit.timeout.ms": "30000",
}
FACTOR_MAX = 2.0  # else clients give up: librdkafka waits 10 s for the first answer, also when a dozen are served first


def slow_motion_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--slow-motion [FACTOR]`."""
    return click.option(
        "--slow-motion",
        type=click.FloatRange(0, FACTOR_MAX, min_open=True),
        is_flag=False,
        flag_value=1.0,
        metavar="[FACTOR]",
        help="Every stage of a request pauses and rooms are tiny, so that one can watch: a request takes about FACTOR "
        f"seconds (default 1, at most {FACTOR_MAX:g}).",
    )(command)


def slow_motion_properties(factor: float | None) -> dict[str, str]:
    """The server properties of a cluster that is so slow; none for None."""
    if factor is None:
        return {}
    pauses = {key: str(round(base_ms * factor)) for key, base_ms in PAUSES_MS.items()}
    return {**ROOMS, **pauses, "barnabas.slow.request.ms": str(round(SLOW_MS * factor))}
