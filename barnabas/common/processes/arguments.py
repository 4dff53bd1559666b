"""Secrets among this process's arguments, which every user of the machine sees (`ps`, /proc/PID/cmdline)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MASK: Final = b"*"
_ARG_START, _ARG_END = 45, 46  # fields 48 and 49 of proc_pid_stat(5), counted from the one after the name


def hide(secrets: Iterable[str]) -> bool:
    """Overwrite secrets in the list of processes; return whether that worked.

    The kernel shows the memory where the arguments were when the process started. Nothing else reads it: the
    interpreter has its own copy.
    """
    wanted = [os.fsencode(secret) for secret in secrets if secret]
    if not wanted:
        return True
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            shown = memory.read(end - start)
            for secret in wanted:
                shown = shown.replace(secret, _MASK * len(secret))
            memory.seek(start)
            return memory.write(shown) == len(shown)
    except (OSError, IndexError, ValueError):  # a sandbox without /proc
        return False
