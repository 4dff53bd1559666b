"""Two calls of the kernel that Python's modules lack. `_calls.c` makes them; the fallback, ctypes, takes 0.6 MB.

`yield_core` gives up the core. Why not os.sched_yield: until Python 3.13 it keeps the interpreter's lock, for which
other threads would wait. `signal_at_end_of_parent` has the kernel send this process a signal when the thread that
started it ends.

Threads: any.
"""

from __future__ import annotations

import os

_PR_SET_PDEATHSIG = 1

try:
    from barnabas.common.processes._calls import signal_at_end_of_parent, yield_core
except ImportError:  # not compiled
    import ctypes

    _libc = ctypes.CDLL(None, use_errno=True)
    yield_core = _libc.sched_yield

    def signal_at_end_of_parent(number: int, /) -> None:
        """See above. Raises OSError."""
        if _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error)) from None


__all__ = ("signal_at_end_of_parent", "yield_core")
