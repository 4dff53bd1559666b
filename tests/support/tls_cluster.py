"""A controller and three brokers whose every connection is TLS, both ends with certificates."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from barnabas.common.processes.interpreter import command
from barnabas.common.processes.ports import reserve_port
from tests.support.certificates import Authority
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import START_TIMEOUT_MS, eventually

BROKERS = (1, 2, 3)


class TlsCluster:
    """Processes in a directory; `own` adds settings to every broker, `everywhere` to the controller too."""

    def __init__(
        self, directory: Path, own: Mapping[str, str] | None = None, everywhere: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.authority = Authority()
        self.authority.write_pem(directory / "ca.pem")
        self._reserved: list[socket.socket] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self.controller_port = self._port()
        self.ports = {number: self._port() for number in BROKERS}
        self._write("controller", 100, f"CONTROLLER://localhost:{self.controller_port}", everywhere or {})
        for number, port in self.ports.items():
            self._write(f"broker-{number}", number, f"SSL://localhost:{port}", {**(own or {}), **(everywhere or {})})
        self.client = self.authority.issue("alice", names=()).write_pem(directory / "alice.pem")

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses."""
        return ",".join(f"localhost:{port}" for port in self.ports.values())

    def __enter__(self) -> TlsCluster:
        try:
            self._start("controller", "controller")
            for number in BROKERS:
                self._start("broker", f"broker-{number}")
            for number in BROKERS:
                is_ready = partial(self.has_logged, number, "is ready")
                eventually(f"broker {number} is ready", is_ready, START_TIMEOUT_MS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            end_process(process)
        for reserved in self._reserved:
            reserved.close()

    def key_file(self, number: int) -> Path:
        """The key store of a broker."""
        return self.directory / f"broker-{number}.pem"

    def renew(self, number: int, path: Path | None = None) -> Path:
        """Put a new certificate in the place of a broker's, or into another file."""
        name = f"broker-{number}"
        new = self.authority.issue(name).write_pem(self.directory / f"{name}.new")
        return Path(shutil.move(new, path or self.key_file(number)))

    def log(self, name: str | int) -> str:
        """The output of a process so far."""
        return (self.directory / f"{name if isinstance(name, str) else f'broker-{name}'}.log").read_text()

    def has_logged(self, name: str | int, text: str) -> bool:
        """Whether a process has logged this."""
        return text in self.log(name)

    def pid(self, number: int) -> int:
        """The process of a broker."""
        return self._processes[number].pid

    def librdkafka(self, user: str = "alice", **more: Any) -> dict[str, Any]:
        """Settings of a confluent-kafka client with the certificate of a user."""
        certificate = self.directory / f"{user}.pem"
        if not certificate.exists():
            self.authority.issue(user, names=()).write_pem(certificate)
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.directory / "ca.pem"),
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(certificate),
            **more,
        }

    def java(self) -> Path:
        """A file with settings of a Java client."""
        path = self.directory / "client.properties"
        path.write_text(
            "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
            f"ssl.keystore.location={self.client}\nssl.truststore.location={self.directory / 'ca.pem'}\n"
        )
        return path

    def _port(self) -> int:
        port, reservation = reserve_port({sock.getsockname()[1] for sock in self._reserved})
        self._reserved.append(reservation)
        return port

    def _write(self, name: str, node_id: int, listener: str, own: Mapping[str, str]) -> None:
        key = self.authority.issue(name).write_pem(self.directory / f"{name}.pem")
        role = "controller" if name == "controller" else "broker"
        settings = {
            "node.id": node_id,
            "process.roles": role,
            "listeners": listener,
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"localhost:{self.controller_port}",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": key,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.directory / "ca.pem",
            "ssl.client.auth": "required",
            "barnabas.ssl.review.interval.ms": 100,
            "log.dirs": self.directory / f"{name}-data",
            "num.partitions": 3,
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 3,
            "transaction.state.log.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
            **own,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.directory / f"{name}.properties").write_text(text)

    def _start(self, module: str, name: str) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            arguments = [*command(f"barnabas.{module}.main"), str(self.directory / f"{name}.properties")]
            self._processes.append(subprocess.Popen(tied_to_parent(arguments), stdout=log, stderr=log))
