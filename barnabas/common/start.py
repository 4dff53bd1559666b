"""`python -E -P .../barnabas/common/start.py MODULE ARGUMENT...`: runs a module of the package that this file is in.

For where Python would not find the package by itself, or would find another one (see `interpreter.py`). What the
package needs is looked for beside it too, after everything else.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Make this package the one that `barnabas` means, then run the module."""
    package = Path(__file__).resolve().parent.parent
    sys.path.append(str(package.parent))
    found = importlib.util.spec_from_file_location("barnabas", package / "__init__.py")
    assert found is not None, "a file that ends in .py has a loader"
    assert found.loader is not None, "a file that ends in .py has a loader"
    sys.modules["barnabas"] = module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
