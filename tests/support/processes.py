"""Child processes that end with their parent, and measurements of a process."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

END_TIMEOUT_S: Final = 30
_CPUCLOCK_SCHED: Final = 2  # the kernel's account in ns, not in clock ticks


def tied_to_parent(command: Sequence[str]) -> list[str]:
    """A command line with which the kernel kills the program when the thread that started it ends."""
    setpriv = shutil.which("setpriv")  # util-linux: part of every Debian
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)


def end_process(child: subprocess.Popen[bytes], timeout_s: float = 15) -> None:
    """End a child with SIGTERM, then with SIGKILL after a timeout, and wait until it has ended."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
    child.wait()


def await_ends(pidfds: Iterable[int]) -> None:
    """Wait until these processes have ended, and close the descriptors."""
    for pidfd in pidfds:
        ended, _, _ = select.select([pidfd], [], [], END_TIMEOUT_S)
        os.close(pidfd)
        assert ended, f"a process did not end within {END_TIMEOUT_S} s"


def resident_bytes(pid: int) -> int:
    """The memory that a process has in RAM (VmRSS)."""
    return int(_status(pid)["VmRSS"].split()[0]) * 1024


def peak_resident_bytes(pid: int) -> int:
    """The most memory that a process had in RAM (VmHWM)."""
    return int(_status(pid)["VmHWM"].split()[0]) * 1024


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process, user and system, in ns resolution; raises OSError after its end.

    Source: the clock id of a process as in Linux's clock_getcpuclockid(3).
    """
    return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
