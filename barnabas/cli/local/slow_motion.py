"""`--slow-motion`: server properties that make a cluster slow and its queues short, so that people can watch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

T = TypeVar("T")

#: Milliseconds at factor 1, where a client's request takes about a second.
PAUSES_MS = {
    "barnabas.slow.motion.network.ms": 100,
    "barnabas.slow.motion.request.queue.ms": 200,
    "barnabas.slow.motion.handler.ms": 500,
    "barnabas.slow.motion.response.ms": 100,
    "barnabas.slow.motion.fetcher.ms": 500,
}
#: Milliseconds at factor 1: a longer request is logged and kept as slow, so all client requests are.
SLOW_MS = 300
#: Short queues and few threads, so that queues fill visibly. Offset commits wait for followers slowed on purpose.
SMALL_QUEUES = {
    "num.network.threads": "1",
    "num.io.threads": "2",
    "queued.max.requests": "8",
    "offsets.commit.timeout.ms": "30000",
}
FACTOR_MAX = 2.0  # above it clients give up: librdkafka waits 10 s for its first response, behind a dozen others


def slow_motion_option(command: Callable[..., T]) -> Callable[..., T]:
    """`--slow-motion [FACTOR]`."""
    return click.option(
        "--slow-motion",
        type=click.FloatRange(0, FACTOR_MAX, min_open=True),
        is_flag=False,
        flag_value=1.0,
        metavar="[FACTOR]",
        help="Pause at every stage of a request and shorten the queues, to watch them: a request takes about FACTOR "
        f"seconds (default 1, at most {FACTOR_MAX:g}).",
    )(command)


def slow_motion_properties(factor: float | None) -> dict[str, str]:
    """The server properties for a factor; none for None."""
    if factor is None:
        return {}
    pauses = {key: str(round(base_ms * factor)) for key, base_ms in PAUSES_MS.items()}
    return {**SMALL_QUEUES, **pauses, "barnabas.slow.request.ms": str(round(SLOW_MS * factor))}
