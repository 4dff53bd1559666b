"""The cyclic garbage collector of a server process: it has little to find, so it looks rarely.

Requests, connections and their errors leave no cycles behind, so reference counts free them. What a broker or a
controller keeps (logs, partitions, metadata) lives long. With CPython's thresholds, a third of the CPU time of creating
partitions went into collections, and each full one stopped all threads for as long as the whole heap takes.
"""

from __future__ import annotations

import gc
from typing import Final

#: Objects that are allocated and not yet freed; young collections; middle ones. One million objects in cycles start a
#: full collection at the latest, unless the heap is far larger than that.
THRESHOLDS: Final = (10_000, 10, 10)


def collect_rarely() -> None:
    """Except what was imported so far from collections, and collect the rest rarely; for the start of a process."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
