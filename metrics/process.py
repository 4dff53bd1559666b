"""The numbers of this process: memory, CPU time, descriptors, collections, and contended locks if they are counted.

The names are those of Prometheus' client libraries (`process_…`, `python_…`). This module reads them itself, since
prometheus-client is not loaded when instruments are registered, and its own collectors have neither the disk account
nor the number of instruments.

Threads: the scraper reads everything.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.locks.factory import lock_tally
from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry

_PROC: Final = Path("/proc")
_IO: Final = Path("/proc/self/io")
_BROKER: Final = (c.LINUX_DISK_READ_BYTES, c.LINUX_DISK_WRITE_BYTES, c.METRICS_COUNT)
_CONTROLLER: Final = (c.CONTROLLER_DISK_READ_BYTES, c.CONTROLLER_DISK_WRITE_BYTES, c.CONTROLLER_METRICS_COUNT)

_USAGE: Final = (
    c.PROCESS_VIRTUAL_MEMORY,
    c.PROCESS_RESIDENT_MEMORY,
    c.PROCESS_START_TIME,
    c.PROCESS_CPU,
    c.PROCESS_OPEN_FDS,
    c.PROCESS_MAX_FDS,
)
_LOCKS: Final = (c.LOCK_TAKEN, c.LOCK_CONTENDED, c.LOCK_WAITED_SECONDS)
_GC: Final = (c.GC_COLLECTED, c.GC_UNCOLLECTABLE, c.GC_COLLECTIONS)
#: Indexes of fields of /proc/PID/stat (proc(5)), from the field after the name of the program.
_UTIME, _STIME, _START_TIME, _VSIZE, _RSS = 11, 12, 19, 20, 21


class Usage(NamedTuple):
    """The resources of the process: bytes, seconds and numbers of descriptors."""

    virtual_bytes: int
    resident_bytes: int
    start_time_s: float  # since 1970
    cpu_s: float
    open_fds: int
    max_fds: int


def usage(boot_time_s: int, proc: Path = _PROC) -> Usage:
    """Return the present resources of the process. Raises OSError on a system without this account (not Linux)."""
    stat = (proc / "self" / "stat").read_text("ascii", "replace")
    fields = stat[stat.rindex(")") + 2 :].split()  # Why: the name, in parentheses, may contain spaces and parentheses
    ticks = os.sysconf("SC_CLK_TCK")
    return Usage(
        int(fields[_VSIZE]),
        int(fields[_RSS]) * resource.getpagesize(),
        boot_time_s + int(fields[_START_TIME]) / ticks,
        (int(fields[_UTIME]) + int(fields[_STIME])) / ticks,
        len(os.listdir(proc / "self" / "fd")),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def boot_time_s(proc: Path = _PROC) -> int:
    """Return when the machine started, in seconds since 1970. Raises OSError if the system does not say."""
    for line in (proc / "stat").read_text("ascii").splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return int(value)
    raise OSError(f"{proc}/stat has no btime")


def _collections() -> Iterator[tuple[tuple[str], tuple[int, int, int]]]:
    for generation, stats in enumerate(gc.get_stats()):
        yield (str(generation),), (stats["collected"], stats["uncollectable"], stats["collections"])


def disk_bytes(field: str, source: Path = _IO) -> int:
    """Return a field (`read_bytes`, `write_bytes`) of the process's I/O account. Raises KeyError if it is not there."""
    for line in source.read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value)
    raise KeyError(field)


def register(registry: Registry, *, is_controller: bool = False) -> None:
    """Register the numbers of this process, without those that the system does not have (not Linux).

    As in Kafka, a controller shows its disk account under KafkaServer and under ControllerServer.
    """
    version = platform.python_version_tuple()
    python = (platform.python_implementation(), *version, platform.python_version())
    registry.table((c.PYTHON_INFO,), lambda: [(python, (1,))])
    registry.table(_GC, _collections)
    tally = lock_tally()
    if tally is not None:
        registry.table(_LOCKS, lambda: [((name,), totals) for name, totals in tally.totals().items()])
    try:
        booted_s = boot_time_s()
        usage(booted_s)
    except OSError:
        pass
    else:
        registry.table(_USAGE, lambda: [((), usage(booted_s))])
    for read, write, count in (_BROKER, _CONTROLLER) if is_controller else (_BROKER,):
        registry.gauge(count, lambda: registry.last_count)
        try:
            disk_bytes("read_bytes")
        except (OSError, KeyError):
            continue
        registry.gauge(read, partial(disk_bytes, "read_bytes"))
        registry.gauge(write, partial(disk_bytes, "write_bytes"))
