"""What the processes of a plain cluster do not load: each of these takes a quarter of a megabyte or more.

Tests broker/main.py, controller/main.py and barnabas/cluster/readiness.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Of the standard library, with what brings them: the table of languages, readers of archives.
UNUSED = {"argparse", "datetime", "difflib", "importlib.resources", "locale", "tempfile"}
#: Of ours: types of what the pages show.
TYPES = {"barnabas.common.pages.live_shape"}


@pytest.mark.parametrize("module", ["barnabas.broker.main", "barnabas.controller.main"])
def test_a_server_loads_no_module_that_it_does_not_need(module: str) -> None:
    code = f"import sys, {module}; print(*{UNUSED | TYPES} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == []


def test_barnabas_up_loads_no_compiled_module() -> None:
    code = "import barnabas.cli.local.up, barnabas.cluster.local_cluster, setup, sys; "
    code += "compiled = {path.removesuffix('.py').replace('/', '.') for path in setup.COMPILED}; "
    code += "print(*compiled & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == []


def test_a_supervisor_waits_without_the_client() -> None:
    code = "import sys; from barnabas.cluster.readiness import known_brokers; assert not known_brokers(1); "
    code += "print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"barnabas.client", "barnabas.protocol"}.isdisjoint(loaded)
