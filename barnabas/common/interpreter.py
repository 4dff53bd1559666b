"""Which interpreter runs the processes of a cluster: this one, or the one that BARNABAS_PYTHON names.

BARNABAS_PYTHON is a command, options included: so a cluster's processes can run on another interpreter than whoever
starts them, which is how the tests of one Python are run against brokers on another (a free-threaded one).
"""

from __future__ import annotations

import os
import shlex
import sys
import sysconfig

VARIABLE = "BARNABAS_PYTHON"


def is_free_threaded() -> bool:
    """Tell whether this interpreter was built to run without a global lock."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def command(module: str) -> list[str]:
    """Return the command that runs a module; -P: what lies in the working directory cannot shadow it.

    Why gil=0 where that can be said: an extension that does not declare itself (cramjam, for Python 3.13) would have
    the lock switched on again in the midst of the process's life. Only functions of bytes are called of it.
    """
    named = os.environ.get(VARIABLE)
    own = [sys.executable, *(("-X", "gil=0") if is_free_threaded() else ())]
    return [*(shlex.split(named) if named else own), "-P", "-m", module]
