"""What reference counts do not free."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import CodeType


def cyclic_garbage(work: Callable[[], object]) -> int:
    """Return how many objects `work` leaves to the garbage collector.

    Objects of code do not count: without a global lock, compiled code leaves one for each line of a traceback.
    """
    was_enabled, flags = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return sum(not isinstance(found, CodeType) for found in gc.garbage)
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
