"""A controller and three brokers whose every connection logs in by GSSAPI, with a KDC of their own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.kdc import REALM, Kdc
from tests.support.sasl_cluster import SaslCluster

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
SERVICE = f"kafka/localhost@{REALM}"
#: Alice may do everything, Bob nothing; no rule makes Mallory a user.
ALICE, BOB, MALLORY = (f"{name}@{REALM}" for name in ("alice", "bob", "mallory"))
RULES = "RULE:[2:$1](kafka),RULE:[1:$1](alice|bob)"


def login_module(principal: str, keytab: Path) -> str:
    """The JAAS entry of a node or a client with a key."""
    return f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}";'


class KerberosCluster(SaslCluster):
    """See the module. The environment must lead its processes to the KDC."""

    def __init__(self, directory: Path, kdc: Kdc, life: str, own: Mapping[str, str] | None = None) -> None:
        self.kdc = kdc
        self._keytab = kdc.keytab("kafka", SERVICE, life=life)
        super().__init__(directory, "SASL_PLAINTEXT", "GSSAPI", own)

    def properties(self, name: str, jaas: str, **more: str) -> Path:
        """A file with settings of a Java client, or of a command."""
        path = self.directory / f"{name}.properties"
        settings = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.jaas.config": jaas,
            **{key.replace("_", "."): text for key, text in more.items()},
        }
        path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        return path

    def python(self) -> dict[str, Any]:
        """Settings of kafka-python and aiokafka, which use the ticket of KRB5CCNAME."""
        return {
            "bootstrap_servers": self.bootstrap.split(","),
            "security_protocol": self.protocol,
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_service_name": "kafka",
        }

    def _settings(self) -> dict[str, str]:
        return {
            "listener.security.protocol.map": f"OUT:{self.protocol},CONTROLLER:{self.protocol}",
            "inter.broker.listener.name": "OUT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.mechanism.controller.protocol": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": RULES,
            "sasl.kerberos.min.time.before.relogin": "1000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:kafka;User:alice",
            **{
                f"listener.name.{listener}.gssapi.sasl.jaas.config": login_module(SERVICE, self._keytab)
                for listener in ("out", "controller")
            },
        }
