"""CPU time of a call, for bounds against hostile input: not of the clock, and the least of several tries.

Other processes on the same core slow a call down, and so does a collection of garbage, but not each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def least_cpu_s(call: Callable[[], object], tries: int = 5) -> float:
    """Call several times; return the seconds of CPU that the fastest call took on this thread."""
    took_s = []
    for _ in range(tries):
        began_s = time.thread_time()
        call()
        took_s.append(time.thread_time() - began_s)
    return min(took_s)
