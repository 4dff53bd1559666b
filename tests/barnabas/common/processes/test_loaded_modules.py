"""What the processes of a plain cluster do not load: each of these takes a quarter of a megabyte or more.

Tests broker/main.py, controller/main.py and barnabas/cluster/readiness.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.common.processes import calls

SETUP = (Path(__file__).resolve().parents[4] / "setup.py").read_text()

#: Of the standard library, with what brings them: the table of languages, readers of archives.
UNUSED = {"argparse", "bz2", "datetime", "difflib", "importlib.resources", "locale", "lzma", "shutil", "tempfile"}
#: Uncompiled, servers need it.
UNUSED |= set() if "ctypes" in vars(calls) else {"ctypes"}
#: What a supervisor does not keep, either: a tenth of a megabyte or more each.
UNUSED_BY_UP = {"bz2", "ctypes", "encodings.idna", "logging", "lzma", "shutil", "sysconfig", "tempfile"}
#: Of ours: types of what the pages show.
TYPES = {"barnabas.common.pages.live_shape"}


@pytest.mark.parametrize("module", ["barnabas.broker.main", "barnabas.controller.main"])
def test_a_server_loads_no_module_that_it_does_not_need(module: str) -> None:
    code = f"import sys, {module}; print(*{UNUSED | TYPES} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == []


def test_barnabas_up_loads_no_compiled_module() -> None:
    assert [module for module in loaded_by_up() if f'"{module.replace(".", "/")}.py"' in SETUP] == []


def test_barnabas_up_loads_no_module_that_it_does_not_need() -> None:
    assert loaded_by_up() & UNUSED_BY_UP == set()


def loaded_by_up() -> set[str]:
    """Return what `barnabas up` imports for a cluster in a directory that is kept."""
    code = "import sys, barnabas.cli.main, barnabas.cli.local.up, barnabas.cluster.local_cluster; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_a_supervisor_waits_without_the_client() -> None:
    code = "import sys; from barnabas.cluster.readiness import known_brokers; assert not known_brokers(1); "
    code += "print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"barnabas.client", "barnabas.protocol", "encodings.idna"}.isdisjoint(loaded)
