"""`barnabas up --ephemeral`: a cluster for a test run in any language, which ends with the process that started it.

The first of these events ends it:
1. a stop signal;
2. end-of-file on its standard input, if that is a pipe or a socket: the starter holds the other end, and the kernel
   closes it however the starter dies (a terminal, a file and /dev/null say nothing about it, and are not read);
3. the end of its parent process: a shell gives its background jobs no pipe;
4. the end of COMMAND, if there is one to run on the cluster.

It leaves nothing behind: the processes are killed, since their data is not read again, and the directory is removed. If
this process itself is killed, the kernel ends the others (`barnabas.common.processes.process`), and the next ephemeral
cluster removes the directory.

Commands do not find an ephemeral cluster unless `$BARNABAS_BOOTSTRAP` or `--data-dir` names it: a test run must not
replace the cluster that a person works with.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.cli.errors import UserError
from barnabas.cli.local.ready import Ready
from barnabas.cli.local.supervisor import Supervisor
from barnabas.cluster import LocalCluster, ProcessDiedError
from barnabas.cluster.plan import CLOCK_KEY, FAULTS_KEY
from barnabas.common.pages.page_access import FAULTS_TOKEN_VARIABLE
from barnabas.common.processes.cluster_file import LOCK_NAME, NAME

if TYPE_CHECKING:
    from barnabas.cluster.security.cluster_security import ClusterSecurity

PREFIX = "barnabas-ephemeral-"
LOG_LINES = 20
STDIN = 0
READ_BYTES = 65536
COMMAND_END_S = 10

#: Defaults for tests: faults can be injected (docs/faults.md), the clock can be moved (docs/clock.md), a killed broker
#: is fenced soon, and few partitions of the internal topics have to be created for the first consumer.
SETTINGS = {
    FAULTS_KEY: "true",
    CLOCK_KEY: "true",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


def new_directory() -> Path:
    """A directory for an ephemeral cluster. Removes the directories of clusters whose supervisor was killed."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_abandoned(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def _is_abandoned(directory: Path) -> bool:
    """Whether a cluster was started here and its supervisor no longer holds the lock."""
    try:
        # Why cluster.json: it is written after the lock is taken. Without it, the cluster may be about to start.
        if directory.stat().st_uid != os.getuid() or not (directory / NAME).exists():
            return False
        lock = os.open(directory / LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


def run_ephemeral(
    brokers: int,
    port: int,
    config: Mapping[str, str],
    *,
    command: Sequence[str],
    print_env: bool,
    check: Callable[[LocalCluster], None],
    first_id: int = 0,
    security: Callable[[Path], ClusterSecurity] | None = None,
    controllers: int = 1,
    is_combined: bool = False,
) -> int:
    """Run a cluster until an event ends it; return the exit code (the command's, if there is one).

    If `config` is not empty, `check` raises UserError for settings that the processes would refuse.
    """
    directory = new_directory()
    try:
        own = None if security is None else security(directory)
        cluster = LocalCluster(
            directory,
            brokers,
            port,
            {**SETTINGS, **config},
            first_id=first_id,
            security=own,
            controller_count=controllers,
            is_combined=is_combined,
        )
        cluster.plan()
        if cluster.config != SETTINGS:
            check(cluster)
        return Ephemeral(cluster, command, print_env=print_env).run()
    except ProcessDiedError:
        _show_logs(cluster)
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _show_logs(cluster: LocalCluster) -> None:
    """Print the last lines of the logs before they are removed: of the processes that failed, else of all."""
    ended = [node for node in cluster.nodes.values() if node.child is not None and (node.child.returncode or 0) > 0]
    for node in ended or cluster.nodes.values():
        for line in node.log_tail(LOG_LINES).splitlines():
            print(f"{node.name}: {line}", file=sys.stderr)


def environment(cluster: LocalCluster) -> dict[str, str]:
    """The environment variables that describe a cluster to a test."""
    pages = [f"{cluster.page_access.scheme}://{address}" for address in cluster.metrics.split(",") if address]
    return {
        "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap,
        "BARNABAS_BOOTSTRAP": cluster.bootstrap,
        "BARNABAS_METRICS_URLS": ",".join(f"{page}/metrics" for page in pages),
        "BARNABAS_FAULTS_URLS": ",".join(f"{page}/faults" for page in pages),
        "BARNABAS_CONTROL_URL": cluster.control_url,
        "BARNABAS_DATA_DIR": str(cluster.directory),
        **({FAULTS_TOKEN_VARIABLE: cluster.change_token} if cluster.change_token else {}),
        **({"BARNABAS_COMMAND_CONFIG": cluster.command_config} if cluster.command_config else {}),
    }


class Ephemeral(Supervisor):
    """The supervisor of a cluster that ends with its starter, or with a command."""

    def __init__(self, cluster: LocalCluster, command: Sequence[str] = (), *, print_env: bool = False) -> None:
        super().__init__(cluster, is_temporary=True)
        self._command = command  # fixed before start
        self._print_env = print_env  # fixed before start
        self._child: subprocess.Popen[bytes] | None = None  # the command, once the cluster is ready
        self._descriptors: list[int] = []  # our pidfds, closed at the end
        self._watch_parent()
        if not command and _is_lifeline(STDIN):
            os.set_blocking(STDIN, False)
            self.watch(STDIN, self._on_input)

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """Leave no pointer: commands must not find the cluster."""
        return contextlib.nullcontext()

    def on_ready(self) -> None:
        """Print the environment, or run the command in it, or print the ready line."""
        if self._command:
            self._start_command()
        elif self._print_env:
            lines = {**environment(self._cluster), "BARNABAS_READY": "1"}  # the last line, for which a reader waits
            print("".join(f"{name}={value}\n" for name, value in lines.items()), end="", flush=True)
        else:
            print(Ready.of(self._cluster).line(), flush=True)  # for a program, even if stdout is a terminal

    def stop(self) -> None:
        """End the command if it still runs, and kill the processes."""
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(COMMAND_END_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._cluster.kill()
        super().stop()

    def close(self) -> None:
        """Close the descriptors."""
        super().close()
        for descriptor in self._descriptors:
            os.close(descriptor)

    def _watch_parent(self) -> None:
        """End when the parent process does. Without pidfds, only standard input can report that."""
        with contextlib.suppress(OSError, AttributeError):
            self.watch(self._pidfd(os.getppid()), self.end)

    def _pidfd(self, pid: int) -> int:
        descriptor = os.pidfd_open(pid)
        self._descriptors.append(descriptor)
        return descriptor

    def _on_input(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(STDIN, READ_BYTES):
                self.unwatch(STDIN)
                self.end()

    def _start_command(self) -> None:
        # Ctrl-C reaches the command too, which handles it in its own way; any other stop signal ends it. Why before
        # the start: the command may be interrupted as soon as it runs.
        signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            self._child = subprocess.Popen(self._command, env={**os.environ, **environment(self._cluster)})
        except OSError as error:
            raise UserError(f"cannot run {self._command[0]}: {error.strerror}") from error
        self.watch(self._pidfd(self._child.pid), self._on_command_end)

    def _on_interrupt(self, number: int, frame: object) -> None:
        """Leave the first Ctrl-C to the command; handle the next one as usual."""
        signal.signal(number, self._on_signal)

    def _on_command_end(self) -> None:
        assert self._child is not None
        code = self._child.wait()
        self.end(code if code >= 0 else 128 - code)


def _is_lifeline(descriptor: int) -> bool:
    """Whether end-of-file on this descriptor means that the starter has ended."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
