"""Starts the interpreter of a simulation, so that no random choice of the operating system reaches the program.

Threads: any.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

#: For the environment: the order of sets of strings.
ENVIRONMENT: Final = {"PYTHONHASHSEED": "0"}
_ADDR_NO_RANDOMIZE: Final = 0x0040000
_ASK: Final = 0xFFFFFFFF
_PR_SET_PDEATHSIG: Final = 1

_libc = ctypes.CDLL(None)


def fix_addresses() -> bool:
    """Let the program that this process executes next have the same addresses in every run; false if it is refused.

    Why: Python before 3.12 hashes None by its address, and so tuples that contain it. Some containers refuse
    personality(2); there, sets of such tuples may have another order in each session.
    """
    if not hasattr(_libc, "personality"):
        return False
    now: int = _libc.personality(_ASK)
    return now >= 0 and bool(_libc.personality(now | _ADDR_NO_RANDOMIZE) >= 0)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends; exit if it has ended already."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
