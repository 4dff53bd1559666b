"""What a server process of a plain cluster does not load: each of these takes a quarter of a megabyte or more.

Tests broker/main.py and controller/main.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Of the standard library, with what brings them: the table of languages, two compressors, readers of archives.
UNUSED = ("argparse", "bz2", "datetime", "difflib", "importlib.resources", "locale", "lzma", "shutil", "tempfile")


@pytest.mark.parametrize("module", ["barnabas.broker.main", "barnabas.controller.main"])
def test_a_server_loads_no_module_that_it_does_not_need(module: str) -> None:
    code = f"import sys, {module}; print(*{set(UNUSED)} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == []
