"""One node of Apache Kafka 4.3.1 (broker and controller in one process), to compare Barnabas with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from barnabas.cluster import HOST, free_ports
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import MAIN_CLASSES, SMALL_JVM
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import START_TIMEOUT_MS, eventually
from tests.support.wire import is_serving

CLUSTER_ID = "QmFybmFiYXMtY29tcGFyZQ"
# The JVM options of kafka-server-start.sh, for a fair comparison.
SERVER_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


@dataclass(slots=True)
class ApacheKafka:
    """Starts and stops the node; `with` does both. Its directory is created and kept.

    `config` holds server properties that override those of a single node.
    """

    runtime: KafkaRuntime
    directory: Path
    config: Mapping[str, str] = field(default_factory=dict)
    jvm_options: Sequence[str] = SMALL_JVM
    ports: tuple[int, int] | None = None  # of clients and of the controller; None: free ones
    format_options: Sequence[str] = ()  # more of kafka-storage format, such as --add-scram
    classes: Path | None = None  # of a plugin of ours
    port: int = 0  # owner: start
    child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's bootstrap.servers."""
        return f"{HOST}:{self.port}"

    @property
    def data_directory(self) -> Path:
        """Its log.dirs."""
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        """The output of the process."""
        return self.directory / "process.log"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self.child is not None
        return self.child.pid

    def start(self) -> None:
        """Format the storage, start the process and return when clients can use it."""
        self.format()
        self.launch()
        eventually("Apache Kafka answers", self._is_usable, START_TIMEOUT_MS)

    def format(self) -> None:
        """Write server.properties and the storage's first files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._properties_file.write_text(self._properties())
        command = self.runtime.command(MAIN_CLASSES["kafka-storage"], *SMALL_JVM)
        command += ["format", "--ignore-formatted", "-t", CLUSTER_ID, "-c", str(self._properties_file)]
        command += self.format_options
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr

    def launch(self) -> None:
        """Start the process of a formatted node. Does not wait for it to be usable."""
        command = tied_to_parent(self.runtime.command("kafka.Kafka", *self.jvm_options, classes=self.classes))
        with self.log_file.open("ab") as log:
            self.child = subprocess.Popen(
                [*command, str(self._properties_file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """End the process."""
        if self.child is not None:
            end_process(self.child)
            self.child = None

    def _is_usable(self) -> bool:
        assert self.child is not None
        assert self.child.poll() is None, f"Apache Kafka ended: {self.log_file.read_text()[-2000:]}"
        return is_serving(self.port)

    @property
    def _properties_file(self) -> Path:
        return self.directory / "server.properties"

    def _properties(self) -> str:
        self.port, controller_port = self.ports or free_ports(2)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "0",
            "controller.quorum.voters": f"0@{HOST}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": os.fspath(self.data_directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.config,
        }
        return "".join(f"{key}={value}\n" for key, value in properties.items())
