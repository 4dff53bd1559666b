"""`barnabas up --ephemeral`: a cluster for a test run in any language, which ends with whoever started it.

What ends it, whichever comes first:
1. a stop signal;
2. end-of-file on its standard input, if that is a pipe or a socket: who started it holds the other end, and the kernel
   closes that however its holder dies (a terminal, a file and /dev/null tell nothing, and are not read);
3. the end of the process that started it, where the kernel tells (Linux): shells give what they start in the background
   no pipe;
4. the end of COMMAND, if it was given one to run on the cluster.

Nothing is left: processes are killed, for nobody reads their data again, and the directory is removed. If this process
itself is killed, the kernel ends the others (`barnabas.common.process`), and the next one removes the directory.
Other commands do not find an ephemeral cluster by themselves: a test run beside a cluster that a person works with is
not to take its place. `$BARNABAS_BOOTSTRAP` and `--data-dir` lead to it.
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

from barnabas.cli.errors import UserError
from barnabas.cli.ready import Ready
from barnabas.cli.supervisor import Supervisor
from barnabas.cluster import LocalCluster, ProcessDiedError

PREFIX = "barnabas-ephemeral-"
LOG_LINES = 20
STDIN = 0
READ_BYTES = 65536
COMMAND_END_S = 10

#: Defaults for tests: faults can be injected (docs/faults.md), a broker that was killed is missed soon, and a first
#: consumer waits for few partitions' logs.
SETTINGS = {
    "barnabas.faults.enable": "true",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


def new_directory() -> Path:
    """A directory for an ephemeral cluster; those of clusters whose supervisor was killed are removed on the way."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_abandoned(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=PREFIX))


def _is_abandoned(directory: Path) -> bool:
    """Whether a cluster was started here, and the lock of the supervisor that started it is free."""
    try:
        # Why cluster.json: it comes after the lock. A directory without it may belong to one that is about to start.
        if directory.stat().st_uid != os.getuid() or not (directory / "cluster.json").exists():
            return False
        lock = os.open(directory / "supervisor.lock", os.O_RDWR)
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
) -> int:
    """Run a cluster until one of its ends comes; return the exit code, that of the command if there is one.

    `check` refuses what the processes would refuse, if there are settings of a person's.
    """
    directory = new_directory()
    cluster = LocalCluster(directory, brokers, port, {**SETTINGS, **config}, first_id=first_id)
    try:
        cluster.plan()
        if config:
            check(cluster)
        return Ephemeral(cluster, command, print_env=print_env).run()
    except ProcessDiedError:
        _show_logs(cluster)
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _show_logs(cluster: LocalCluster) -> None:
    """The ends of the logs, which go with the directory: of who ended by itself, else of all."""
    ended = [node for node in cluster.nodes.values() if node.child is not None and (node.child.returncode or 0) > 0]
    for node in ended or cluster.nodes.values():
        for line in node.log_tail(LOG_LINES).splitlines():
            print(f"{node.name}: {line}", file=sys.stderr)


def environment(cluster: LocalCluster) -> dict[str, str]:
    """What a test needs to know of a cluster, by the names of environment variables."""
    pages = [f"http://{address}" for address in cluster.metrics.split(",") if address]
    return {
        "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap,
        "BARNABAS_BOOTSTRAP": cluster.bootstrap,
        "BARNABAS_METRICS_URLS": ",".join(f"{page}/metrics" for page in pages),
        "BARNABAS_FAULTS_URLS": ",".join(f"{page}/faults" for page in pages),
        "BARNABAS_CONTROL_URL": cluster.control_url,
        "BARNABAS_DATA_DIR": str(cluster.directory),
    }


class Ephemeral(Supervisor):
    """The supervisor of a cluster that ends with its starter, or with a command."""

    def __init__(self, cluster: LocalCluster, command: Sequence[str] = (), *, print_env: bool = False) -> None:
        super().__init__(cluster, is_temporary=True)
        self._command = command  # fixed before start
        self._print_env = print_env  # fixed before start
        self._child: subprocess.Popen[bytes] | None = None  # the command, once the cluster is ready
        self._descriptors: list[int] = []  # pidfds of ours, closed at the end
        self._watch_parent()
        if not command and _is_lifeline(STDIN):
            os.set_blocking(STDIN, False)
            self.watch(STDIN, self._on_input)

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """Others do not find it."""
        return contextlib.nullcontext()

    def on_ready(self) -> None:
        """Print the environment, or run the command in it, or print the ready line."""
        if self._command:
            self._start_command()
        elif self._print_env:
            lines = {**environment(self._cluster), "BARNABAS_READY": "1"}  # the last line: a reader need wait no more
            print("".join(f"{name}={value}\n" for name, value in lines.items()), end="", flush=True)
        else:
            print(Ready.of(self._cluster).line(), flush=True)  # for a program, also where a terminal is inherited

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
        """Give the descriptors back."""
        super().close()
        for descriptor in self._descriptors:
            os.close(descriptor)

    def _watch_parent(self) -> None:
        """End when the parent does. Where the kernel cannot tell, standard input has to."""
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
        # Ctrl-C goes to the command too, which ends in its own way; any other stop signal ends it. Why before the
        # start: the command may be interrupted as soon as it runs.
        signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            self._child = subprocess.Popen(self._command, env={**os.environ, **environment(self._cluster)})
        except OSError as error:
            raise UserError(f"cannot run {self._command[0]}: {error.strerror}") from error
        self.watch(self._pidfd(self._child.pid), self._on_command_end)

    def _on_interrupt(self, number: int, frame: object) -> None:
        """The first one is the command's; a further one is taken as usual."""
        signal.signal(number, self._on_signal)

    def _on_command_end(self) -> None:
        assert self._child is not None
        code = self._child.wait()
        self.end(code if code >= 0 else 128 - code)


def _is_lifeline(descriptor: int) -> bool:
    """Whether end-of-file on this descriptor tells that somebody is gone."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
