"""crc32c of the package `crc32c`: its C function, without what the package's `__init__` imports.

To know its own version and for its command line, the package imports the standard library's parsers of e-mail, zip
files and arguments: 2 MB of memory for each process.

Threads: any; the function keeps no state.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any, Final

_PACKAGE: Final = "crc32c"
_EXTENSION: Final = "crc32c._crc32c"


def _load() -> Any:
    """Return the package's C extension; the package, should it have another one."""
    if _PACKAGE in sys.modules:
        return sys.modules[_PACKAGE]
    package = importlib.util.find_spec(_PACKAGE)  # of a package at the top: this imports nothing
    folders = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec(_EXTENSION, folders or [])
    if spec is None or spec.loader is None:
        return importlib.import_module(_PACKAGE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: crc32c(data, value=0): the CRC-32C of bytes-like data that follow those with the CRC `value`.
crc32c: Final[Callable[..., int]] = _load().crc32c
