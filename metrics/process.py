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
_BROKER: Final = (c.LINUX_DISK_READ_BYTES, c.LINUX_DISK_WRITE_BYTES, c.METRICS_COUNT)
_CONTROLLER: Final = (c.CONTROLLER_DISK_READ_BYTES, c.CONTROLLER_DISK_WRITE_BYTES, c.CONTROLLER_METRICS_COUNT)


def disk_bytes(field: str, source: Path = _IO) -> int:
    """Return a field (`read_bytes`, `write_bytes`) of the process' I/O account."""
    for line in source.read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value)
    raise KeyError(field)


def register(registry: Registry, *, is_controller: bool = False) -> None:
    """Add the gauges of this process; where the system keeps no account of disks (not Linux), without these.

    As in Kafka a controller has them under KafkaServer, and under ControllerServer too.
    """
    for read, write, count in (_BROKER, _CONTROLLER) if is_controller else (_BROKER,):
        registry.gauge(count, lambda: registry.last_count)
        try:
            disk_bytes("read_bytes")
        except (OSError, KeyError):
            continue
        registry.gauge(read, partial(disk_bytes, "read_bytes"))
        registry.gauge(write, partial(disk_bytes, "write_bytes"))
