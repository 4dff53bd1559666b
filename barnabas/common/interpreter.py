"""Which interpreter runs the processes of a cluster: this one, or the one that BARNABAS_PYTHON names.

BARNABAS_PYTHON is a command, options included: so a cluster's processes can run on another interpreter than whoever
starts them, which is how the tests of one Python are run against brokers on another (a free-threaded one).
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Final

VARIABLE: Final = "BARNABAS_PYTHON"
ISOLATED: Final = ("-E", "-P")  # without PYTHONPATH and its like; without the working directory
HOME: Final = Path(__file__).resolve().parents[2]  # the directory that holds the package `barnabas`


def is_free_threaded() -> bool:
    """Tell whether this interpreter was built to run without a global lock."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def command(module: str) -> list[str]:
    """Return the command that runs a module of ours, isolated from the caller's PYTHONPATH and working directory.

    A caller's own `queue.py`, or a package that bears the name of one of ours, must not end up in a server. If this
    process itself found Barnabas by PYTHONPATH, the server is told where, after everything else.

    Why gil=0 where that can be said: an extension that does not declare itself (cramjam, for Python 3.13) would have
    the lock switched on again in the midst of the process's life. Only functions of bytes are called of it.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return [*shlex.split(named), *ISOLATED, "-m", module]
    own = [sys.executable, *(("-X", "gil=0") if is_free_threaded() else ()), *ISOLATED]
    if HOME not in _python_path():
        return [*own, "-m", module]
    start = f"import runpy, sys; sys.path.append({str(HOME)!r}); runpy.run_module({module!r}, None, '__main__', True)"
    return [*own, "-c", start]


def _python_path() -> list[Path]:
    return [Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
