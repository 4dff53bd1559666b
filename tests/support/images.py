"""The images that docker-compose.yml names: pulled, or, where no registry answers, stand-ins made on this machine.

The stand-in for Python's image is a Debian of the same release, made by debootstrap and kept in build/ for the next
run; for Prometheus's it is this machine's own Prometheus on top. There is none for Grafana. The wheels that the
Dockerfile's pip asks for are fetched here, by this machine's pip settings, and served to the build.
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

from tests.support.docker_engine import BRIDGE, Engine, EngineError

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / "build" / "compose"
PYTHON_IMAGE = "python:3.11-slim-bookworm"
PULL_TIMEOUT_S = 180

_PACKAGES = "python3,python3-venv,python3-pip,python3-dev,gcc,libc6-dev,ca-certificates"


def pull(engine: Engine, image: str) -> bool:
    """Whether the image is there, pulled if need be."""
    return engine.can("image", "inspect", image) or engine.can("pull", image, timeout_s=PULL_TIMEOUT_S)


def make_python_image(engine: Engine) -> None:
    """Debian's Python 3.11 under the name of Python's own image. Only in an engine of ours."""
    assert engine.is_ours
    archive = CACHE / "python.tar"
    if not archive.exists():
        _debootstrap(archive)
    engine.docker("import", "--change", 'CMD ["python"]', str(archive), PYTHON_IMAGE)


def make_prometheus_image(engine: Engine, image: str) -> None:
    """This machine's Prometheus under the name of its own image. Only in an engine of ours."""
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
    """Serve the wheels to containers for as long as the block lasts; yields pip's settings, to be build arguments."""
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
        """Say nothing."""


def _bridge_address() -> str:
    """Where containers that are being built find this machine."""
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
    """What the image installs, for its Python and not for that of this machine."""
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
