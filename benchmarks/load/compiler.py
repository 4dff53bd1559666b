"""Compiles the C programs beside this file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class CompilerError(Exception):
    """There is no compiler, or a program does not compile. The message is one line."""


def compiled(name: str, directory: Path) -> Path:
    """Compile `name`.c into a directory, which is created, and return the program. Raises CompilerError."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise CompilerError("a C compiler is missing (Debian: apt-get install gcc libc6-dev)")
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(program), str(Path(__file__).with_name(f"{name}.c"))]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise CompilerError(f"{name}.c does not compile: {result.stderr.strip()}")
    return program
