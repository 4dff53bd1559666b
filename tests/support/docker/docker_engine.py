"""A Docker engine for tests: the running one, or one that is started for them and leaves nothing behind.

Our own engine has its data, its socket and its pid file in a temporary directory. It changes the machine's packet
filter and two kernel settings, and adds a bridge. All of that is restored at its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import START_TIMEOUT_MS, eventually

STOP_TIMEOUT_S = 60
BRIDGE = "docker0"
_DIRECTORY = Path("/var/tmp")  # on a disk, where /tmp may be memory; short, for the socket's path
_SETTINGS = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables")
_PACKAGES = "docker.io docker-compose"


class EngineError(Exception):
    """No engine is available here; the message is one line that says what to install."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Access to an engine. `is_ours`: started by `engine()`, so it has no data of other users."""

    environment: Mapping[str, str]
    is_ours: bool

    def docker(self, *arguments: str, timeout_s: float = 120, input_text: str | None = None) -> str:
        """Run `docker ARGUMENTS` and return its output; raises AssertionError with its error output."""
        return self.run(["docker", *arguments], timeout_s=timeout_s, input_text=input_text)

    def run(
        self,
        command: list[str],
        *,
        timeout_s: float,
        input_text: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command that uses this engine."""
        done = subprocess.run(
            command,
            env={**self.environment, **(extra or {})},
            input=input_text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def can(self, *arguments: str, timeout_s: float = 120) -> bool:
        """Whether `docker ARGUMENTS` succeeds."""
        return _succeeds(["docker", *arguments], self.environment, timeout_s)


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """The running engine, or our own during the block. Raises EngineError."""
    environment = dict(os.environ)
    if shutil.which("docker") and _succeeds(["docker", "info"], environment, 30):
        yield Engine(environment, is_ours=False)
        return
    for program in ("docker", "dockerd", "iptables"):
        if shutil.which(program) is None:
            raise EngineError(f"{program} is missing: start a Docker engine, or install one (Debian: {_PACKAGES})")
    if os.geteuid() != 0:
        raise EngineError("no Docker engine answers, and only root can start one")
    with _only_one(), _machine_put_back(), _our_engine() as ours:
        yield ours


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Wait until another run's engine has ended: one would restore the machine while the other still runs."""
    with (_DIRECTORY / "barnabas-engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _our_engine() -> Iterator[Engine]:
    directory = Path(tempfile.mkdtemp(prefix="barnabas-engine-", dir=_DIRECTORY))
    socket = f"unix://{directory}/socket"
    command = ["dockerd", "--host", socket, "--data-root", str(directory / "data")]
    command += ["--exec-root", str(directory / "exec"), "--pidfile", str(directory / "pid")]
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    ours = Engine({**os.environ, "DOCKER_HOST": socket}, is_ours=True)
    try:
        try:
            eventually("dockerd answers", lambda: process.poll() is not None or ours.can("info"), START_TIMEOUT_MS)
        except AssertionError as late:
            raise EngineError(f"dockerd does not answer: {_last_line(log)}") from late
        if process.poll() is not None:
            raise EngineError(f"dockerd cannot run here: {_last_line(log)}")
        yield ours
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_TIMEOUT_S)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _machine_put_back() -> Iterator[None]:
    """Undo dockerd's changes to the machine outside its directories."""
    settings = {path: path.read_text() for path in map(Path("/proc/sys").joinpath, _SETTINGS) if path.exists()}
    had_bridge = Path("/sys/class/net", BRIDGE).exists()
    rules = {table: _filter("iptables-save", "-t", table) for table in ("filter", "nat")}
    try:
        yield
    finally:
        if not had_bridge and Path("/sys/class/net", BRIDGE).exists():
            _filter("ip", "link", "delete", BRIDGE)
        for table, before in rules.items():
            _restore(table, before)
        for path, value in settings.items():
            path.write_text(value)


def _restore(table: str, before: str) -> None:
    """Restore a table of the packet filter; an empty text stands for an unused table."""
    if before.strip():
        _filter("iptables-restore", "--table", table, input_text=before)
        return
    _filter("iptables", "-t", table, "-F")
    _filter("iptables", "-t", table, "-X")
    if table == "filter":
        _filter("iptables", "-P", "FORWARD", "ACCEPT")


def _filter(*command: str, input_text: str | None = None) -> str:
    return subprocess.run(command, input=input_text, check=True, capture_output=True, text=True).stdout


def _succeeds(command: list[str], environment: Mapping[str, str], timeout_s: float) -> bool:
    try:
        return subprocess.run(command, env=environment, capture_output=True, timeout=timeout_s).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _last_line(log: Path) -> str:
    return (log.read_text(errors="replace").splitlines() or ["no output"])[-1]
