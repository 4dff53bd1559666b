"""A controller and two brokers whose every connection is SASL_PLAINTEXT with SCRAM, and an authorizer.

The nodes are the user `admin`, whose credential is in the controller's bootstrap file, as of `kafka-storage format
--add-scram`. Clients have a listener of their own.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from barnabas.common.processes.interpreter import command
from barnabas.common.processes.ports import reserve_port
from barnabas.controller.metadata.bootstrap import FEATURES
from barnabas.protocol.metadata_records import FeatureLevelRecord, encode_record
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.security.image import credential_record
from barnabas.security.sasl.scram.formulas import credential_of, salted_password
from barnabas.security.values import ScramKey, ScramMechanism
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import START_TIMEOUT_MS, eventually

BROKERS = (1, 2)
MECHANISM = ScramMechanism.SCRAM_SHA_512
SASL = MECHANISM.mechanism_name
ITERATIONS = 4096
ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"


def login(user: str, password: str, more: str = "") -> str:
    """Return a JAAS entry of a SCRAM client."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}"{more};'


class ScramCluster:
    """Processes in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._reserved: list[socket.socket] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.controller_port = self._port()
        self.ports = {number: self._port() for number in BROKERS}
        self.node_ports = {number: self._port() for number in BROKERS}
        self._write("controller", 100, f"CONTROLLER://127.0.0.1:{self.controller_port}")
        for number, port in self.ports.items():
            listeners = f"CLIENTS://127.0.0.1:{port},NODES://127.0.0.1:{self.node_ports[number]}"
            self._write(f"broker-{number}", number, listeners)
        self._write_bootstrap()

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def __enter__(self) -> ScramCluster:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes.values()):
            end_process(process)
        for reserved in self._reserved:
            reserved.close()

    def start(self) -> None:
        """Start every process, and wait until the brokers are unfenced."""
        self.start_processes("controller", *(f"broker-{number}" for number in BROKERS))
        self.await_ready()

    def start_processes(self, *names: str) -> None:
        """Start processes, and wait for nothing."""
        for name in names:
            with (self.directory / f"{name}.log").open("wb") as log:
                module = name.partition("-")[0]
                arguments = [*command(f"barnabas.{module}.main"), str(self.directory / f"{name}.properties")]
                self._processes[name] = subprocess.Popen(tied_to_parent(arguments), stdout=log, stderr=log)

    def await_ready(self) -> None:
        """Wait until the brokers are unfenced."""
        for number in BROKERS:
            log = partial(self.log, f"broker-{number}")
            eventually(f"broker {number} is ready", lambda log=log: "is ready" in log(), START_TIMEOUT_MS)

    def stop_brokers(self) -> None:
        """End the brokers, which leave the cluster in order."""
        for number in BROKERS:
            end_process(self._processes[f"broker-{number}"])

    def kill(self, *names: str) -> None:
        """Kill these processes, or all, with SIGKILL."""
        for name, process in self._processes.items():
            if process.poll() is None and (not names or name in names):
                os.kill(process.pid, signal.SIGKILL)
                process.wait()

    def log(self, name: str) -> str:
        """Return the output of a process since its last start."""
        return (self.directory / f"{name}.log").read_text()

    def librdkafka(self, user: str = ADMIN, password: str = ADMIN_PASSWORD, **more: Any) -> dict[str, Any]:
        """Return settings of a confluent-kafka client of a user."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": SASL,
            "sasl.username": user,
            "sasl.password": password,
            **more,
        }

    def java(self, user: str = ADMIN, password: str = ADMIN_PASSWORD, more: str = "") -> Path:
        """Return a file with settings of a Java client of a user."""
        path = self.directory / f"client-{user}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={SASL}\nsasl.jaas.config={login(user, password, more)}\n"
        )
        return path

    def _port(self) -> int:
        port, reservation = reserve_port({sock.getsockname()[1] for sock in self._reserved})
        self._reserved.append(reservation)
        return port

    def _write(self, name: str, node_id: int, listeners: str) -> None:
        mechanism = SASL.lower()
        settings: dict[str, object] = {
            "node.id": node_id,
            "process.roles": name.partition("-")[0],
            "listeners": listeners,
            "listener.security.protocol.map": ",".join(
                f"{listener}:SASL_PLAINTEXT" for listener in ("CLIENTS", "NODES", "CONTROLLER")
            ),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "inter.broker.listener.name": "NODES",
            "sasl.enabled.mechanisms": SASL,
            "sasl.mechanism.inter.broker.protocol": SASL,
            "sasl.mechanism.controller.protocol": SASL,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
            "delegation.token.secret.key": "secret",
            "log.dirs": self.directory / f"{name}-data",
            "offsets.topic.replication.factor": 2,
            "offsets.topic.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 2000,
            "broker.heartbeat.interval.ms": 200,
        }
        for listener in ("clients", "nodes", "controller"):
            settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = login(ADMIN, ADMIN_PASSWORD)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        path = self.directory / f"{name}.properties"
        path.write_text(text)
        path.chmod(0o600)

    def _write_bootstrap(self) -> None:
        """Write the controller's first records."""
        salt = b"salt of the admin"
        salted = salted_password(MECHANISM, ADMIN_PASSWORD, salt, ITERATIONS)
        credential = credential_of(MECHANISM, salted, salt, ITERATIONS)
        records = [
            *(FeatureLevelRecord(name=name, feature_level=level) for name, level in FEATURES.items()),
            credential_record(ScramKey(ADMIN, MECHANISM), credential),
        ]
        batch = build_batch(
            [SimpleRecord(0, None, encode_record(record)) for record in records], base_offset=0, leader_epoch=0
        )
        data = self.directory / "controller-data"
        data.mkdir()
        (data / "bootstrap.checkpoint").write_bytes(batch)
