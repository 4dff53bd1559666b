"""What reference counts do not free."""

from __future__ import annotations

import gc
from collections.abc import Callable


def cyclic_garbage(work: Callable[[], object]) -> int:
    """Return how many objects `work` leaves in cycles that nothing refers to."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        work()
        return gc.collect()
    finally:
        if was_enabled:
            gc.enable()
