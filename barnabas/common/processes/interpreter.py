"""The commands that run our processes: the interpreter (this one, or that of BARNABAS_PYTHON), isolated.

BARNABAS_PYTHON is a command with options. With it, a cluster's processes run on another interpreter than their starter:
tests on one Python can use brokers on another (a free-threaded one). That interpreter has its own Barnabas.

Processes start isolated from PYTHONPATH and the working directory: a user's `queue.py`, or a package with the name of
one of ours, must not be imported by a server. They find Barnabas

| where it is                                                   | by                                               |
|---------------------------------------------------------------|--------------------------------------------------|
| in site-packages, also the user's                             | `-m MODULE`                                      |
| on PYTHONPATH or sys.path, in a checkout, linked              | `start.py MODULE`, by path: the caller's package |

`pip install --target` is of the second kind, and so is an archive that is unpacked before it runs (shiv). Archives that
put each dependency into its own directory (pex) do not work.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

VARIABLE: Final = "BARNABAS_PYTHON"
ISOLATED: Final = ("-E", "-P")  # without PYTHONPATH and its like; without the working directory
HOME: Final = Path(__file__).resolve().parents[3]  # the directory that holds the package `barnabas`
START: Final = HOME / "barnabas" / "common" / "processes" / "start.py"


def is_free_threaded() -> bool:
    """Return whether this is a free-threaded interpreter."""
    return "t" in sys.abiflags  # Why not sysconfig: it loads the whole configuration of the interpreter


def command(module: str) -> list[str]:
    """Return the command that runs a server's module, on BARNABAS_PYTHON if that is set."""
    named = os.environ.get(VARIABLE)
    return [*shlex.split(named), *ISOLATED, "-m", module] if named else own_command(module)


def own_command(module: str) -> list[str]:
    """Return the command that runs one of our modules on this interpreter, isolated.

    Why gil=0 on a free-threaded one: an extension that does not declare its support (cramjam, for Python 3.13) would
    enable the lock again while the process runs. We call only its functions on bytes, which need no lock.
    """
    own = [sys.executable, *(("-X", "gil=0") if is_free_threaded() else ()), *ISOLATED]
    return [*own, "-m", module] if _is_found_without_help() else [*own, str(START), module]


def callers_command(code: str) -> list[str]:
    """Return the command that runs Python code on this interpreter with the caller's environment, PYTHONPATH included.

    Only for code that stands for the caller, such as a caller's simulated tests: servers start isolated.
    """
    return [sys.executable, "-P", "-c", code]


def _is_found_without_help() -> bool:
    """Return whether an isolated interpreter finds Barnabas, unless PYTHONPATH names this one.

    If a test run has the sources on sys.path, and Barnabas is installed, its servers use the installed one.
    """
    if HOME in _python_path():
        return False
    directories = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return PathFinder.find_spec("barnabas", directories) is not None


def _python_path() -> list[Path]:
    return [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
