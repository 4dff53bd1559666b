"""Which interpreter runs the processes of a cluster: this one, or the one that BARNABAS_PYTHON names; and from where.

BARNABAS_PYTHON is a command, options included: so a cluster's processes can run on another interpreter than whoever
starts them, which is how the tests of one Python are run against brokers on another (a free-threaded one). It has a
Barnabas of its own.

Processes start isolated from PYTHONPATH and the working directory: a caller's own `queue.py`, or a package that bears
the name of one of ours, must not end up in a server. They find Barnabas

| where it is                                                   | by                                               |
|---------------------------------------------------------------|--------------------------------------------------|
| in site-packages, the user's own too                          | `-m MODULE`                                      |
| on PYTHONPATH, put on sys.path, in a checkout, linked         | `start.py MODULE`, by path: the caller's package |

`pip install --target` is of the second kind. So is an archive that is unpacked before it runs (shiv); one whose
dependencies are each in a directory of their own (pex) is not served.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

VARIABLE: Final = "BARNABAS_PYTHON"
ISOLATED: Final = ("-E", "-P")  # without PYTHONPATH and its like; without the working directory
HOME: Final = Path(__file__).resolve().parents[2]  # the directory that holds the package `barnabas`
START: Final = HOME / "barnabas" / "common" / "start.py"


def is_free_threaded() -> bool:
    """Tell whether this interpreter was built to run without a global lock."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def command(module: str) -> list[str]:
    """Return the command that runs a server's module, on the interpreter that BARNABAS_PYTHON names if it does."""
    named = os.environ.get(VARIABLE)
    return [*shlex.split(named), *ISOLATED, "-m", module] if named else own_command(module)


def own_command(module: str) -> list[str]:
    """Return the command that runs a module of ours on this interpreter, isolated.

    Why gil=0 where that can be said: an extension that does not declare itself (cramjam, for Python 3.13) would have
    the lock switched on again in the midst of the process's life. Only functions of bytes are called of it.
    """
    own = [sys.executable, *(("-X", "gil=0") if is_free_threaded() else ()), *ISOLATED]
    return [*own, "-m", module] if _is_found_without_help() else [*own, str(START), module]


def _is_found_without_help() -> bool:
    """Tell whether an isolated interpreter finds Barnabas, and no caller asked for another one by PYTHONPATH.

    A test run that has the sources on its path, and Barnabas installed, has the installed one in its servers.
    """
    if HOME in _python_path():
        return False
    directories = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return PathFinder.find_spec("barnabas", directories) is not None


def _python_path() -> list[Path]:
    return [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
