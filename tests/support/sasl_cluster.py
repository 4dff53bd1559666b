"""A controller and three brokers whose every connection logs in by SASL, with TLS or without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.protocol.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from barnabas.protocol.metadata_records.record import encode_record
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.security.sasl.scram.formulas import make_credential
from barnabas.security.values import ScramMechanism
from tests.support.tls_cluster import TlsCluster

MODULES = "org.apache.kafka.common.security"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
NODE = ("node", "node's secret")
ALICE = ("alice", 'alice, "x=y"')
BOB = ("bob", "b")


def quoted(text: str) -> str:
    """A text as JAAS notation has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def login_module(mechanism: str, user: str, password: str) -> str:
    """The JAAS entry of a client."""
    if mechanism == "OAUTHBEARER":
        return (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub={quoted(user)} "
            'unsecuredLoginLifetimeSeconds="3600"'
        )
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f"{MODULES}.{module} required username={quoted(user)} password={quoted(password)}"


class SaslCluster(TlsCluster):
    """See the module; nodes log in to each other by `mechanism`."""

    def __init__(self, directory: Path, protocol: str, mechanism: str, own: Mapping[str, str] | None = None) -> None:
        self.protocol = protocol
        self.mechanism = mechanism
        super().__init__(directory, own)
        data = directory / "controller-data"
        data.mkdir()
        (data / "bootstrap.checkpoint").write_bytes(scram_bootstrap())

    def sasl(self, mechanism: str, user: str = ALICE[0], password: str = ALICE[1], **more: Any) -> dict[str, Any]:
        """Settings of a confluent-kafka client."""
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "sasl.mechanism": mechanism,
            "ssl.ca.location": str(self.directory / "ca.pem"),
            **more,
        }
        if mechanism == "OAUTHBEARER":
            found |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={user}"}
        else:
            found |= {"sasl.username": user, "sasl.password": password}
        return found

    def java_sasl(self, mechanism: str, user: str = ALICE[0], password: str = ALICE[1]) -> Path:
        """A file with settings of a Java client."""
        path = self.directory / f"{mechanism}-{user}-{abs(hash(password))}.properties"
        jaas = login_module(mechanism, user, password).replace("\\", "\\\\")
        text = (
            f"security.protocol={self.protocol}\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas};\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.directory / 'ca.pem'}\n"
        )
        path.write_text(text)
        return path

    def _write(self, name: str, node_id: int, listener: str, own: Mapping[str, str]) -> None:
        super()._write(name, node_id, listener.replace("SSL://", "OUT://"), {**self._settings(), **own})
        path = self.directory / f"{name}.properties"
        without = ("security.inter.broker.protocol", "ssl." if self.protocol == "SASL_PLAINTEXT" else "ssl.client.auth")
        lines = [line for line in path.read_text().splitlines() if not line.startswith(without)]
        path.write_text("\n".join(lines) + "\n")

    def _settings(self) -> dict[str, str]:
        settings = {
            "listener.security.protocol.map": f"OUT:{self.protocol},CONTROLLER:{self.protocol}",
            "inter.broker.listener.name": "OUT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": self.mechanism,
            "sasl.mechanism.controller.protocol": self.mechanism,
        }
        for listener in ("out", "controller"):
            for mechanism in MECHANISMS:
                jaas = login_module(mechanism, *NODE)
                if mechanism == "PLAIN":
                    jaas += "".join(f" user_{user}={quoted(password)}" for user, password in (NODE, ALICE, BOB))
                key = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
                settings[key] = jaas.replace("\\", "\\\\") + ";"
        return settings


def scram_bootstrap() -> bytes:
    """What `kafka-storage format --add-scram` writes, with the users of this module."""
    records: list[FeatureLevelRecord | UserScramCredentialRecord] = [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        FeatureLevelRecord(name="group.version", feature_level=1),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
    ]
    for user, password in (NODE, ALICE, BOB):
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = make_credential(mechanism, password)
            records.append(
                UserScramCredentialRecord(
                    name=user,
                    mechanism=mechanism,
                    salt=made.salt,
                    stored_key=made.stored_key,
                    server_key=made.server_key,
                    iterations=made.iterations,
                )
            )
    values = [SimpleRecord(0, None, encode_record(record)) for record in records]
    return bytes(build_batch(values, base_offset=0, leader_epoch=0))
