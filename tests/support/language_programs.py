"""Client programs in Go, Node and Java, built once from the registries of these and kept under the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.kafka.built_once import built_once, cache_directory
from tests.support.kafka.kafka_tools import SMALL_JVM
from tests.support.programs import path_of

BUILD_TIMEOUT_S = 600


def go_program(sources: Path, name: str) -> list[str]:
    """Return the command of the Go module in a directory; `name` is that of its build."""

    def build(directory: Path) -> None:
        _run([_program("go"), "build", "-o", str(directory / "witness"), "."], sources)

    return [str(_built(sources, name, build) / "witness")]


def node_program(sources: Path, name: str, script: str) -> list[str]:
    """Return the command of a script in a directory with a package.json; `name` is that of its build."""

    def build(directory: Path) -> None:
        shutil.copytree(sources, directory, dirs_exist_ok=True)
        _run([_program("npm"), "install", "--no-package-lock", "--no-audit", "--no-fund"], directory)

    return [_program("node"), str(_built(sources, name, build) / script)]


def java_program(sources: Path, name: str, main_class: str, **properties: str) -> list[str]:
    """Return the command of a class in a directory with a pom.xml, whose properties choose the libraries."""
    defined = [f"-D{key}={value}" for key, value in properties.items()]

    def build(directory: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={directory / 'jars'}", "-DincludeScope=runtime"]
        _run([_program("mvn"), "-q", "-B", *defined, *goal], sources)
        jars = f"{directory / 'jars'}/*"
        _run([_program("javac"), "-cp", jars, "-d", str(directory / "classes"), f"{main_class}.java"], sources)

    built = _built(sources, "-".join((name, *properties.values())), build)
    return [_program("java"), *SMALL_JVM, "-cp", f"{built / 'classes'}:{built / 'jars'}/*", main_class]


def _built(sources: Path, name: str, build: Callable[[Path], None]) -> Path:
    """Return the directory with the build of the present sources."""
    content = b"".join(path.read_bytes() for path in sorted(sources.iterdir()))
    return built_once(cache_directory() / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}", build)


def _program(name: str) -> str:
    path = path_of(name)
    assert path is not None, f"{name} is missing: see `make test-tools`"
    return path


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
