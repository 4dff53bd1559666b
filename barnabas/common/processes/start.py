"""`python -E -P .../start.py MODULE ARGUMENT...`: runs a module of the package that contains this file.

Used where Python would not find the package, or would find another one (see `interpreter.py`). The package's directory
is added to the end of sys.path, for its dependencies.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Import this package as `barnabas`, then run the module."""
    package = Path(__file__).resolve().parents[2]
    sys.path.append(str(package.parent))
    found = importlib.util.spec_from_file_location("barnabas", package / "__init__.py")
    assert found is not None, "a .py file has a loader"
    assert found.loader is not None, "a .py file has a loader"
    sys.modules["barnabas"] = module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
