"""What the operating system knows of this process, beyond what prometheus_client's process collector tells.

Threads: the gauges are read by the scraper.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metrics import catalogue as c

if TYPE_CHECKING:
    from metrics.registry import Registry

_IO: Final = Path("/proc/self/io")


def disk_bytes(field: str, source: Path = _IO) -> int:
    """Return a field (`read_bytes`, `write_bytes`) of the process' I/O account."""
    for line in source.read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value)
    raise KeyError(field)


def register(registry: Registry) -> None:
    """Add the gauges of this process; where the system keeps no account (not Linux), none."""
    try:
        disk_bytes("read_bytes")
    except (OSError, KeyError):
        return
    registry.gauge(c.LINUX_DISK_READ_BYTES, partial(disk_bytes, "read_bytes"))
    registry.gauge(c.LINUX_DISK_WRITE_BYTES, partial(disk_bytes, "write_bytes"))
