"""The functions of `time`, by the clocks of the calling task's process. Reading a clock is a point.

Reading a clock takes a nanosecond, so no two readings are equal. Programs that order equal times by the addresses of
objects would have another history in each run.

CPU time does not pass: what it bounds (a pattern that takes too long) would depend on the machine.

Threads: any task.
"""

from __future__ import annotations

import time as real
from typing import Final

from barnabas.testing.simulation.machine.process import WALL_START_NS
from barnabas.testing.simulation.machine.scheduler import NS_PER_S, active


def monotonic_ns() -> int:
    """See time.monotonic_ns."""
    scheduler = active()
    scheduler.countdown -= 1  # as `point` does
    if scheduler.countdown <= 0:
        scheduler.interrupt()
    scheduler.now_ns = now_ns = scheduler.now_ns + 1
    task = scheduler.current
    return now_ns if task is None else task.process.monotonic_start_ns + now_ns


def time_ns() -> int:
    """See time.time_ns."""
    scheduler = active()
    scheduler.point()
    scheduler.now_ns += 1
    task = scheduler.current
    return WALL_START_NS + scheduler.now_ns if task is None else task.process.wall_ns()


def monotonic() -> float:
    """See time.monotonic."""
    return monotonic_ns() / NS_PER_S


def time() -> float:
    """See time.time."""
    return time_ns() / NS_PER_S


_localtime, _gmtime, _ctime, _strftime, _asctime = real.localtime, real.gmtime, real.ctime, real.strftime, real.asctime
_WALL_CLOCKS: Final = (real.CLOCK_REALTIME, getattr(real, "CLOCK_REALTIME_COARSE", real.CLOCK_REALTIME))
_CPU_CLOCKS: Final = (real.CLOCK_PROCESS_CPUTIME_ID, real.CLOCK_THREAD_CPUTIME_ID)


def clock_gettime_ns(clock: int) -> int:
    """See time.clock_gettime_ns."""
    if clock in _CPU_CLOCKS:
        return cpu_time_ns()
    return time_ns() if clock in _WALL_CLOCKS else monotonic_ns()


def clock_gettime(clock: int) -> float:
    """See time.clock_gettime."""
    return clock_gettime_ns(clock) / NS_PER_S


def localtime(seconds: float | None = None) -> real.struct_time:
    """See time.localtime."""
    return _localtime(time() if seconds is None else seconds)


def gmtime(seconds: float | None = None) -> real.struct_time:
    """See time.gmtime."""
    return _gmtime(time() if seconds is None else seconds)


def ctime(seconds: float | None = None) -> str:
    """See time.ctime."""
    return _ctime(time() if seconds is None else seconds)


def strftime(form: str, moment: real.struct_time | tuple[int, ...] | None = None) -> str:
    """See time.strftime."""
    return _strftime(form, localtime() if moment is None else moment)  # type: ignore[arg-type]


def asctime(moment: real.struct_time | tuple[int, ...] | None = None) -> str:
    """See time.asctime."""
    return _asctime(localtime() if moment is None else moment)  # type: ignore[arg-type]


def cpu_time_ns() -> int:
    """See time.thread_time_ns and time.process_time_ns."""
    return 0


def cpu_time() -> float:
    """See time.thread_time and time.process_time."""
    return 0.0


def sleep(seconds: float) -> None:
    """See time.sleep."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    active().sleep_ns(int(seconds * NS_PER_S))
