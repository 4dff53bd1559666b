"""The settings of glibc's allocator for a server process, as environment variables of its start (mallopt(3)).

A controller works in bursts: after a start, one request to each broker names every partition. glibc takes blocks from
the kernel, and gives them back, only above a size; whenever such a block is freed, that size grows to the block's, up
to 32 MiB. So after a burst its large tables and buffers stay in the process, between small objects that are still used.
With a fixed size they go back.

A broker keeps glibc's way: it takes a buffer of up to a megabyte for each request of a producer, again and again.

An environment that sets the variable already wins. Other C libraries do not know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: glibc's own initial value; to set it makes it fixed.
MMAP_THRESHOLD_BYTES: Final = 128 << 10
_CONTROLLER: Final = {"MALLOC_MMAP_THRESHOLD_": str(MMAP_THRESHOLD_BYTES)}


def with_settings(environment: Mapping[str, str], program: str) -> dict[str, str]:
    """Return the environment in which a program ("broker", "controller" or "server") is started."""
    return {**(_CONTROLLER if program == "controller" else {}), **environment}
