"""Settings with which clients connect to a secured cluster, in the words of each client.

They begin as properties of Kafka's Java client, which is also what `--command-config` of commands takes. The others are
made from them. Certificates and keys are PEM files; those of users, which have passwords, are PKCS12 stores for Java.

Threads: none; pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

SCRAM: Final = "SCRAM-SHA-512"
PLAIN: Final = "PLAIN"
MODULES: Final = {
    SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
}
CLIENT_PROPERTIES: Final = "client.properties"
_SPARK_PREFIX: Final = "kafka."


class Login(NamedTuple):
    """A user of a cluster, as a client needs it; `key_file` and `ca_file` are None where TLS is not used."""

    protocol: str
    user: str
    password: str
    mechanism: str = SCRAM
    ca_file: str | None = None
    key_file: str | None = None  # the user's key and certificate, which `password` opens; None: no certificate
    is_key_encrypted: bool = True
    ca_pem: str | None = None  # the content of `ca_file`, for settings that work wherever they are copied to

    @property
    def is_sasl(self) -> bool:
        """Whether the user logs in with the password."""
        return self.protocol.startswith("SASL_")


def java(login: Login, bootstrap: str = "") -> dict[str, str]:
    """Return properties for Kafka's Java client, and for --command-config."""
    properties = {"bootstrap.servers": bootstrap} if bootstrap else {}
    properties["security.protocol"] = login.protocol
    if login.is_sasl:
        properties["sasl.mechanism"] = login.mechanism
        properties["sasl.jaas.config"] = (
            f"{MODULES[login.mechanism]} required username={quoted(login.user)} password={quoted(login.password)};"
        )
    if login.ca_pem is not None:
        properties["ssl.truststore.type"] = "PEM"
        properties["ssl.truststore.certificates"] = login.ca_pem
    elif login.ca_file is not None:
        properties["ssl.truststore.type"] = "PEM"
        properties["ssl.truststore.location"] = login.ca_file
    if login.key_file is not None and login.is_key_encrypted:  # Why not PEM: Java cannot decrypt such keys in it
        properties["ssl.keystore.type"] = "PKCS12"
        properties["ssl.keystore.location"] = login.key_file.removesuffix(".pem") + ".p12"
        properties["ssl.keystore.password"] = login.password
    elif login.key_file is not None:
        properties["ssl.keystore.type"] = "PEM"
        properties["ssl.keystore.location"] = login.key_file
    return properties


def spark(login: Login, bootstrap: str = "") -> dict[str, str]:
    """Return options of Spark's Kafka source and sink."""
    return {f"{_SPARK_PREFIX}{key}": value for key, value in java(login, bootstrap).items()}


def librdkafka(login: Login, bootstrap: str = "") -> dict[str, str]:
    """Return properties for librdkafka: kcat, confluent-kafka and the clients of many languages."""
    properties = {"bootstrap.servers": bootstrap} if bootstrap else {}
    properties["security.protocol"] = login.protocol
    if login.is_sasl:
        properties["sasl.mechanism"] = login.mechanism
        properties["sasl.username"] = login.user
        properties["sasl.password"] = login.password
    if login.ca_file is not None:
        properties["ssl.ca.location"] = login.ca_file
    if login.key_file is not None:
        properties["ssl.certificate.location"] = login.key_file
        properties["ssl.key.location"] = login.key_file
        if login.is_key_encrypted:
            properties["ssl.key.password"] = login.password
    return properties


def kafka_python(login: Login, bootstrap: str = "") -> dict[str, str]:
    """Return arguments for the classes of kafka-python."""
    arguments = {"bootstrap_servers": bootstrap} if bootstrap else {}
    arguments["security_protocol"] = login.protocol
    if login.is_sasl:
        arguments["sasl_mechanism"] = login.mechanism
        arguments["sasl_plain_username"] = login.user
        arguments["sasl_plain_password"] = login.password
    if login.ca_file is not None:
        arguments["ssl_cafile"] = login.ca_file
    if login.key_file is not None:
        arguments["ssl_certfile"] = login.key_file
        arguments["ssl_keyfile"] = login.key_file
        if login.is_key_encrypted:
            arguments["ssl_password"] = login.password
    return arguments


def files(login: Login, bootstrap: str = "") -> dict[str, str]:
    """Return the settings for all clients: the content of each file, by its name."""
    return {
        CLIENT_PROPERTIES: properties_text(java(login, bootstrap)),
        "librdkafka.conf": "".join(f"{key}={text}\n" for key, text in librdkafka(login, bootstrap).items()),
        "kafka_python.json": json.dumps(kafka_python(login, bootstrap), indent=1) + "\n",
        "spark.json": json.dumps(spark(login, bootstrap), indent=1) + "\n",
    }


def quoted(text: str) -> str:
    """Return a text in quotes, as JAAS notation has it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the text of a properties file, in which a backslash is doubled."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
