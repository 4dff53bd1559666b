"""The cluster of docker-compose.yml, and of the files that go with it, on an engine, with its own ports and project."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from confluent_kafka.admin import AdminClient

from tests.support.docker.docker_engine import Engine
from tests.support.docker.images import ROOT
from tests.support.history import RECONNECT
from tests.support.waiting import eventually

BROKERS = ("broker-0", "broker-1", "broker-2")
CONTROLLERS = ("controller-100", "controller-101", "controller-102")
NODES = (*CONTROLLERS, *BROKERS)
IDS = {name: int(name.rpartition("-")[2]) for name in NODES}
BUILD_TIMEOUT_S = 1800  # a minute or two of two cores, which may be shared
UP_TIMEOUT_S = 120
LOG_TAIL = "60"
PLAIN = ("docker-compose.yml",)
SECURE = (*PLAIN, "docker-compose.secure.yml")


def compose_file(name: str = PLAIN[0]) -> dict[str, Any]:
    """docker-compose.yml or another file, parsed."""
    return cast(dict[str, Any], yaml.safe_load((ROOT / name).read_text()))


@dataclass(slots=True)
class ComposeCluster:
    """Our project on an engine."""

    engine: Engine
    files: Sequence[str] = PLAIN
    directory: Path = ROOT  # from which compose is run
    project: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    _command: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [f"BARNABAS_PORT_{number}" for number in range(len(BROKERS))]
        names += [f"BARNABAS_PAGE_PORT_{id_}" for id_ in IDS.values()]
        names += ["PROMETHEUS_PORT", "GRAFANA_PORT"]
        self.ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self.project = f"barnabas-test-{os.getpid()}-{len(self.files)}"
        self._command = ["docker", "compose"] if self.engine.can("compose", "version") else ["docker-compose"]

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses for clients on this machine."""
        return ",".join(f"localhost:{self.ports[f'BARNABAS_PORT_{number}']}" for number in range(len(BROKERS)))

    @property
    def prometheus(self) -> str:
        """The address of Prometheus's page."""
        return f"http://localhost:{self.ports['PROMETHEUS_PORT']}"

    def page(self, node: str) -> str:
        """The address of a process's pages for browsers on this machine."""
        return f"localhost:{self.ports[f'BARNABAS_PAGE_PORT_{IDS[node]}']}"

    def compose(self, *arguments: str, timeout_s: float = UP_TIMEOUT_S, input_text: str | None = None) -> str:
        """Run a compose command."""
        variables = {name: str(port) for name, port in self.ports.items()} | {"PWD": str(self.directory)}
        command = [*self._command, "--project-name", self.project]
        for name in self.files:
            command += ["--file", str(ROOT / name)]
        return self.engine.run([*command, *arguments], timeout_s=timeout_s, extra=variables, input_text=input_text)

    def build(self, arguments: dict[str, str]) -> None:
        """Build the image as the compose file describes it."""
        options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        self.compose("build", *options, CONTROLLERS[0], timeout_s=BUILD_TIMEOUT_S)

    def up(self, services: Sequence[str]) -> None:
        """Start the services and wait until every node is healthy."""
        self.compose("up", "-d", "--no-build", *services)
        for node in NODES:
            self.wait_healthy(node)

    def down(self) -> None:
        """Remove containers, networks and volumes."""
        self.compose("down", "--volumes", "--timeout", "10")

    def container(self, service: str) -> str:
        """The id of a service's container, stopped or not."""
        label = f"label=com.docker.compose.project={self.project}"
        service_label = f"label=com.docker.compose.service={service}"
        found = self.engine.docker("ps", "--all", "--quiet", "--filter", label, "--filter", service_label).split()
        assert len(found) == 1, f"containers of {service}: {found}"
        return found[0]

    def inspect(self, service: str, template: str) -> str:
        """A property of a service's container, by a template of docker inspect."""
        return self.engine.docker("inspect", "--format", template, self.container(service)).strip()

    def wait_healthy(self, service: str) -> None:
        """Wait until the health check of the image passes."""
        container = self.container(service)
        health = ("inspect", "--format", "{{.State.Health.Status}}", container)
        try:
            eventually(f"{service} is healthy", lambda: self.engine.docker(*health).strip() == "healthy", 60_000)
        except AssertionError as error:
            raise AssertionError(f"{error}; its log ends with: {self.logs()[service]}") from error

    def kill(self, service: str) -> None:
        """Kill (SIGKILL) a container, which stays dead under any restart policy."""
        self.engine.docker("kill", "--signal", "KILL", self.container(service))
        self.engine.docker("wait", self.container(service))
        assert self.inspect(service, "{{.State.Running}}") == "false"

    def start(self, service: str) -> None:
        """Start a dead container again."""
        assert self.inspect(service, "{{.State.Running}}") == "false"
        self.engine.docker("start", self.container(service))

    def execute(self, service: str, *command: str, input_text: str | None = None) -> str:
        """Run a command inside a service's container."""
        return self.engine.docker("exec", "-i", self.container(service), *command, input_text=input_text)

    def network(self) -> str:
        """The network that the services share."""
        return self.inspect(BROKERS[0], "{{range $name, $_ := .NetworkSettings.Networks}}{{$name}}{{end}}")

    def admin(self) -> AdminClient:
        """An admin client on this machine."""
        return AdminClient({"bootstrap.servers": self.bootstrap, **RECONNECT})

    def containers(self) -> dict[str, str]:
        """All containers of the project, also those that have ended: service -> id."""
        label = f"label=com.docker.compose.project={self.project}"
        fields = '{{.ID}} {{.Label "com.docker.compose.service"}}'
        lines = self.engine.docker("ps", "--all", "--filter", label, "--format", fields).splitlines()
        return {service: container for container, service in map(str.split, lines)}

    def logs(self) -> dict[str, str]:
        """The last lines of each container's output."""
        command = ["docker", "logs", "--tail", LOG_TAIL]
        return {node: self._output([*command, self.container(node)]) for node in NODES}

    def _output(self, command: list[str]) -> str:
        return subprocess.run(
            command, env=dict(self.engine.environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ).stdout


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards of the repository, by file name."""
    directory = Path(ROOT / "dashboards" / "json")
    return {path.name: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [found.getsockname()[1] for found in sockets]
    finally:
        for found in sockets:
            found.close()
