"""A controller and a broker with a listener for each way to connect.

| listener | protocol | mechanisms |
|---|---|---|
| NODES, CONTROLLER | SASL_PLAINTEXT | OAUTHBEARER; nodes get tokens from the provider by client credentials |
| PASSWORDS | SASL_PLAINTEXT | all; the provider's keys are in a file |
| SECURED | SASL_SSL | all; the provider's keys are at its address |
| CERTIFICATES, one for each library | SSL | none; clients present certificates |
| UNSIGNED | SASL_PLAINTEXT | OAUTHBEARER without signatures |
| SESSIONS, one for each library | SASL_PLAINTEXT | PLAIN and SCRAM with sessions of 2 s, OAUTHBEARER |
"""

from __future__ import annotations

import re
import socket
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from barnabas.common.processes.interpreter import command
from barnabas.common.processes.ports import reserve_port
from tests.clients.security.login import Login
from tests.clients.security.provider import AUDIENCE, CLIENT, ISSUER, OAuthProvider
from tests.support.certificates import Authority
from tests.support.processes import end_process, tied_to_parent
from tests.support.sasl_cluster import ALICE, MECHANISMS, MODULES, login_module, quoted, scram_bootstrap
from tests.support.waiting import START_TIMEOUT_MS, eventually

SESSION_MS = 2_000
PROTOCOLS = {"PASSWORDS": "SASL_PLAINTEXT", "SECURED": "SASL_SSL", "UNSIGNED": "SASL_PLAINTEXT"}
#: Why one for each library: failures are logged a few at a time for each listener, and sessions counted.
EACH = {"CERTIFICATES": "SSL", "SESSIONS": "SASL_PLAINTEXT"}
TIMEOUT_S = 10
_BEARER = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required"


class MatrixCluster:
    """See the module. `libraries` are the names of those with a listener for sessions."""

    def __init__(self, directory: Path, libraries: Sequence[str]) -> None:
        self.directory = directory
        self.authority = Authority()
        self.ca = self.authority.write_pem(directory / "ca.pem")
        self.provider = OAuthProvider(directory, self.authority)
        self._reserved: list[socket.socket] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._libraries = list(libraries)
        self._protocols = dict(PROTOCOLS)
        for index in range(len(libraries)):
            self._protocols |= {f"{kind}{index}": protocol for kind, protocol in EACH.items()}
        self._ports = {name: self._port() for name in ("CONTROLLER", "NODES", "metrics", *self._protocols)}
        controller_data = directory / "controller-data"
        controller_data.mkdir()
        (controller_data / "bootstrap.checkpoint").write_bytes(scram_bootstrap())
        self._write("controller", 100, ["CONTROLLER"])
        self._write("broker", 1, ["NODES", *self._protocols])

    def __enter__(self) -> MatrixCluster:
        self.provider.__enter__()
        try:
            for name in ("controller", "broker"):
                with (self.directory / f"{name}.log").open("wb") as log:
                    arguments = [*command(f"barnabas.{name}.main"), str(self.directory / f"{name}.properties")]
                    self._processes.append(subprocess.Popen(tied_to_parent(arguments), stdout=log, stderr=log))
            eventually("the broker is ready", lambda: "is ready" in self.log(), START_TIMEOUT_MS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            end_process(process)
        self.provider.__exit__()
        for reserved in self._reserved:
            reserved.close()

    def login(self, library: str, listener: str, mechanism: str) -> Login:
        """Return how a library connects; the credentials are still to be set."""
        name = self._own(listener, library)
        return Login(f"localhost:{self._ports[name]}", self._protocols[name], self.ca, mechanism)

    def log(self, name: str = "broker") -> str:
        """Return the output of a process so far."""
        return (self.directory / f"{name}.log").read_text()

    def counts(self, library: str) -> dict[str, float]:
        """Return how often clients of a library's listener logged in, logged in again, and were closed."""
        url = f"http://127.0.0.1:{self._ports['metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            page = str(answer.read(), "utf-8")
        listener = self._own("SESSIONS", library)
        found = {}
        for name in ("successful_authentication", "successful_reauthentication", "expired_connections_killed_count"):
            pattern = rf'^\w*socket_server_metrics_{name}(?:_total)?\{{[^}}]*listener="{listener}"[^}}]*\}} (\S+)$'
            found[name] = sum(float(value) for value in re.findall(pattern, page, re.MULTILINE))
        return found

    def _own(self, listener: str, library: str) -> str:
        return f"{listener}{self._libraries.index(library)}" if listener in EACH else listener

    def _port(self) -> int:
        port, reservation = reserve_port({sock.getsockname()[1] for sock in self._reserved})
        self._reserved.append(reservation)
        return port

    def _write(self, name: str, node_id: int, listeners: Sequence[str]) -> None:
        protocols = {"CONTROLLER": "SASL_PLAINTEXT", "NODES": "SASL_PLAINTEXT", **self._protocols}
        settings: dict[str, object] = {
            "node.id": node_id,
            "process.roles": name,
            "listeners": ",".join(f"{each}://localhost:{self._ports[each]}" for each in listeners),
            "listener.security.protocol.map": ",".join(f"{each}:{protocol}" for each, protocol in protocols.items()),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"localhost:{self._ports['CONTROLLER']}",
            "inter.broker.listener.name": "NODES",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.provider.address}/jwks",
            "sasl.oauthbearer.token.endpoint.url": f"{self.provider.address}/token",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.clock.skew.seconds": 0,
            "sasl.login.connect.timeout.ms": 5000,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.authority.issue(name).write_pem(self.directory / f"{name}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "log.dirs": self.directory / f"{name}-data",
            "num.network.threads": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        if name == "broker":
            settings["barnabas.metrics.port"] = self._ports["metrics"]
        for listener in {"CONTROLLER", "NODES", *listeners}:
            settings |= self._of_listener(listener)
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        path.chmod(0o600)

    def _of_listener(self, listener: str) -> dict[str, object]:
        prefix = f"listener.name.{listener.lower()}."
        tls = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.ca}"'
        if listener.startswith("CERTIFICATES"):
            return {f"{prefix}ssl.client.auth": "required"}
        if listener in ("NODES", "CONTROLLER"):
            own = f'clientId="{CLIENT[0]}" clientSecret="{CLIENT[1]}" {tls}'
            return {
                f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{prefix}oauthbearer.sasl.jaas.config": f"{_BEARER} {own};",
            }
        if listener == "UNSIGNED":
            skew = 'unsecuredValidatorAllowableClockSkewMs="0"'
            return {
                f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{prefix}oauthbearer.sasl.jaas.config": f"{_BEARER} {skew};",
            }
        user, password = ALICE
        plain = f"{login_module('PLAIN', *CLIENT)} user_{user}={quoted(password)}"
        settings: dict[str, object] = {f"{prefix}plain.sasl.jaas.config": plain.replace("\\", "\\\\") + ";"}
        if listener == "SECURED":
            settings[f"{prefix}oauthbearer.sasl.jaas.config"] = f"{_BEARER} {tls};"
        else:
            settings[f"{prefix}oauthbearer.sasl.oauthbearer.jwks.endpoint.url"] = self.provider.jwks.as_uri()
        if listener not in PROTOCOLS:
            for mechanism in ("plain", "scram-sha-256", "scram-sha-512"):
                settings[f"{prefix}{mechanism}.connections.max.reauth.ms"] = SESSION_MS
        return settings
