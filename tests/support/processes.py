"""Child processes that cannot outlive whoever started them, and what a test reads off a process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_CPUCLOCK_SCHED: Final = 2  # the kernel's own account, and not its clock ticks


def tied_to_parent(command: Sequence[str]) -> list[str]:
    """The command line under which the kernel kills the program when the thread that started it ends, however it
    ends.
    """
    setpriv = shutil.which("setpriv")  # util-linux: part of every Debian
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)


def end_process(child: subprocess.Popen[bytes], timeout_s: float = 15) -> None:
    """End a child with SIGTERM, or SIGKILL if it does not listen, and wait until it is gone."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
    child.wait()


def resident_bytes(pid: int) -> int:
    """The memory that a process has in RAM (VmRSS)."""
    return int(_status(pid)["VmRSS"].split()[0]) * 1024


def peak_resident_bytes(pid: int) -> int:
    """The most memory that a process had in RAM (VmHWM)."""
    return int(_status(pid)["VmHWM"].split()[0]) * 1024


def cpu_seconds(pid: int) -> float:
    """The CPU time, user and system, that a process has used, to the nanosecond; raises OSError when it is gone.

    Source: Linux's number of the clock of a process, as clock_getcpuclockid(3) makes it.
    """
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
