"""`python -m tests.controller.raft.compiled DIRECTORY`: the core and its simulator compiled by mypyc, for `make raft`.

The directory gets a copy of the sources with the compiled modules beside them. A run in it has the same histories in
less than half of the time; the command compares some, and fails if they differ.

Mistakes on purpose (simulator/mutants.py) replace the code of functions, so they need the uncompiled sources.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

CORE = "barnabas/controller/raft"
SIMULATOR = "tests/controller/raft/simulator"
#: What mypyc would gain nothing from, or cannot compile: tuples, and an exception.
INTERPRETED = (f"{CORE}/effects.py", f"{SIMULATOR}/violation.py")
SAME_STEPS = 60_000


def sources() -> list[str]:
    """The sources on which a history depends, from the directory of the checkout."""
    core = [*glob(f"{CORE}/*.py"), *glob(f"{CORE}/handlers/*.py")]
    simulator = [f"{SIMULATOR}/{name}.py" for name in ("invariants", "node", "violation", "world")]
    return sorted(source for source in [*core, *simulator] if not source.endswith("__init__.py"))


def compile_into(directory: Path) -> None:
    """Copy the sources into the directory and compile them there."""
    from setuptools import setup  # Why here: a run of the sources needs no compiler

    from setup import BuildOnAllCores, compiled

    shutil.rmtree(directory, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c")
    shutil.copytree("barnabas", directory / "barnabas", ignore=ignored)
    shutil.copytree("tests/controller/raft", directory / "tests/controller/raft", ignore=ignored)
    (directory / "tests/support").mkdir()
    shutil.copy("tests/support/seeded_run.py", directory / "tests/support")
    before = Path.cwd()
    os.chdir(directory)
    try:
        modules = [source for source in sources() if source not in INTERPRETED]
        setup(
            name="raft",
            script_args=["--quiet", "build_ext", "--inplace"],
            ext_modules=compiled("--explicit-package-bases", *modules),
            cmdclass={"build_ext": BuildOnAllCores},
            packages=[],
        )
    finally:
        os.chdir(before)


def history(directory: Path) -> str:
    """The last line of a short run in a directory."""
    command = [sys.executable, "-m", "tests.controller.raft", "--steps", str(SAME_STEPS), "--jobs", "1"]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.splitlines()[-1]


def main() -> int:
    """Compile, and compare with the sources."""
    directory = Path(sys.argv[1]).resolve()
    compile_into(directory)
    compiled, uncompiled = history(directory), history(Path.cwd())
    if compiled != uncompiled:
        print(f"the compiled code has another history:\n{compiled}\n{uncompiled}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
