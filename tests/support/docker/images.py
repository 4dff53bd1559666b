"""The images of docker-compose.yml: pulled, or replaced by substitutes built on this machine if no registry answers.

The substitute for Python's image is a Debian of the same release, built by debootstrap and kept in build/ for the next
run. That for Prometheus adds this machine's Prometheus. There is none for Grafana. The wheels that the Dockerfile's pip
needs are downloaded with this machine's pip settings, and served to the build.
"""

from __future__ import annotations

import configparser
import contextlib
import functools
import http.server
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.docker.docker_engine import BRIDGE, Engine, EngineError

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / "build" / "compose"
PYTHON_IMAGE = "python:3.11-slim-bookworm"
PULL_TIMEOUT_S = 180

_PACKAGES = "python3,python3-venv,python3-pip,python3-dev,gcc,libc6-dev,ca-certificates"


def pull(engine: Engine, image: str) -> bool:
    """Whether the image is available; pulls it if it is missing."""
    return engine.can("image", "inspect", image) or engine.can("pull", image, timeout_s=PULL_TIMEOUT_S)


def make_python_image(engine: Engine) -> None:
    """Build Debian's Python 3.11 under the name of Python's image. Only in our own engine."""
    assert engine.is_ours
    archive = CACHE / "python.tar"
    if not archive.exists():
        _debootstrap(archive)
    engine.docker("import", "--change", 'CMD ["python"]', str(archive), PYTHON_IMAGE)


def make_prometheus_image(engine: Engine, image: str) -> None:
    """Build this machine's Prometheus under the name of its image. Only in our own engine."""
    assert engine.is_ours
    prometheus = _require("prometheus", "prometheus")
    context = CACHE / "prometheus"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy2(prometheus, context / "prometheus")
    (context / "Dockerfile").write_text(
        f'FROM {PYTHON_IMAGE}\nCOPY prometheus /bin/prometheus\nENTRYPOINT ["/bin/prometheus"]\n'
    )
    engine.docker("build", "--quiet", "--tag", image, str(context))


@contextlib.contextmanager
def wheels_served() -> Iterator[dict[str, str]]:
    """Serve the wheels to containers during the block; yields pip's settings, for the build arguments."""
    directory = CACHE / "wheels"
    _fetch_wheels(directory)
    host = _bridge_address()
    handler = functools.partial(_QuietHandler, directory=str(directory))
    with http.server.ThreadingHTTPServer((host, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="wheels")
        thread.start()
        try:
            address = f"http://{host}:{server.server_address[1]}/"
            yield {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": address, "PIP_TRUSTED_HOST": host}
        finally:
            server.shutdown()
            thread.join()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _bridge_address() -> str:
    """The address of this machine for containers that are being built."""
    command = ["ip", "-json", "-4", "address", "show", BRIDGE]
    (interface,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return str(interface["addr_info"][0]["local"])


def _debootstrap(archive: Path) -> None:
    debootstrap = _require("debootstrap", "debootstrap")
    root = archive.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = [debootstrap, "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise EngineError(f"no registry answers, and debootstrap failed: {done.stdout.splitlines()[-1:]}")
    (root / "usr/bin/python").symlink_to("python3")
    subprocess.run(
        ["tar", "-C", str(root), "--exclude=./var/cache/apt/*", "-cf", str(archive) + ".part", "."], check=True
    )
    os.replace(str(archive) + ".part", archive)
    shutil.rmtree(root)


def _fetch_wheels(directory: Path) -> None:
    """Download the image's requirements, for its Python instead of this machine's."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    wanted = [line for line in settings["options"]["install_requires"].splitlines() if line]
    wanted += tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    machine = platform.machine()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(directory), "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", "3.11"]
    for release in ("2014", "_2_27", "_2_28", "_2_34"):
        command += ["--platform", f"manylinux{release}_{machine}"]
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([*command, *wanted], check=True, timeout=300)


def _require(program: str, package: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise EngineError(f"no registry answers, and {program} is missing (Debian: apt-get install {package})")
    return path
