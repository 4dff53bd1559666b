"""A standalone Spark cluster on the loopback interface: a master and workers, from PySpark's own classes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.support.processes import tied_to_parent
from tests.support.waiting import START_TIMEOUT_MS, eventually

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
END_TIMEOUT_S = 30
#: The JVMs run for a minute, so they are tuned for a fast start and little memory.
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_MASTER_URL = r"Starting Spark master at (spark://\S+)"


def write_defaults(directory: Path) -> Path:
    """Write the defaults of small jobs, and return their directory: SPARK_CONF_DIR."""
    directory.mkdir(exist_ok=True)
    lines = [f"spark.{who}.extraJavaOptions {SMALL_JVM}" for who in ("driver", "executor")]
    (directory / "spark-defaults.conf").write_text("\n".join([*lines, "spark.executor.memory 512m", ""]))
    return directory


class SparkCluster:
    """A master and `workers` workers with `cores` cores each; a context manager. `url` is the master's."""

    def __init__(self, directory: Path, workers: int, cores: int) -> None:
        self.directory = directory
        self.url = ""
        self._workers, self._cores = workers, cores
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        try:
            master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
            self.url = self._await_line(master, "master", _MASTER_URL)
            for number in range(self._workers):
                name = f"worker-{number}"
                worker = self._start(
                    name, "org.apache.spark.deploy.worker.Worker", "--webui-port", "0",
                    "--cores", str(self._cores), "--memory", "1g", "--work-dir", str(self.directory / name), self.url,
                )  # fmt: skip
                self._await_line(worker, name, r"(Successfully registered with master)")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def settings(self) -> dict[str, str]:
        """The environment variables of a job for this cluster."""
        return {
            "SPARK_MASTER": self.url,
            "SPARK_CONF_DIR": str(write_defaults(self.directory / "conf")),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
        }

    def applications(self, worker: int) -> set[str]:
        """The applications that ran executors on a worker."""
        return {path.name for path in (self.directory / f"worker-{worker}").glob("app-*")}

    def close(self) -> None:
        """End the workers, whose executors end with them, then the master."""
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        self.directory.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "160m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
        }
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                tied_to_parent([str(SPARK_HOME / "bin" / "spark-class"), main, "--host", HOST, *arguments]),
                cwd=self.directory, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _await_line(self, process: subprocess.Popen[bytes], name: str, pattern: str) -> str:
        log = self.directory / f"{name}.log"
        found: list[str] = []

        def is_there() -> bool:
            text = log.read_text(errors="replace")
            assert process.poll() is None, f"{name} ended at start: {text[-2000:]}"
            found[:] = re.findall(pattern, text)
            return bool(found)

        eventually(f"{name} has started", is_there, START_TIMEOUT_MS)
        return found[0]
