"""The cyclic garbage collector of a server process: it has little to find, so it looks rarely.

Requests, connections, their errors, and deleted logs leave no cycles behind, so reference counts free them. What a
broker or a controller keeps (logs, partitions, metadata) lives long. With CPython's thresholds, a third of the CPU time
of creating partitions went into collections, and each full one stopped all threads for as long as the whole heap takes.
A cycle that holds a large buffer would now live longer: the collector counts objects, not bytes.
"""

from __future__ import annotations

import gc
from typing import Final

from barnabas.common.threads import HAS_GLOBAL_LOCK

#: A young collection for so many objects that were allocated and are not freed; a middle one after so many young ones;
#: a full one after so many middle ones, if the heap has grown by a quarter. Without a global lock each collection is a
#: full one, and small requests with no garbage at all led to one for every 5,000 of them.
THRESHOLDS: Final = (10_000 if HAS_GLOBAL_LOCK else 100_000, 10, 10)


def collect_rarely() -> None:
    """Leave what was imported so far out of collections, and collect the rest rarely; for the start of a process."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
