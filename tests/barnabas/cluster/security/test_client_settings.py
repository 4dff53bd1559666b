"""Settings of clients, in the words of each."""

from __future__ import annotations

import pytest

from barnabas.cluster.security.client_settings import (
    Login,
    java,
    kafka_python,
    librdkafka,
    properties_text,
    quoted,
    spark,
)
from barnabas.config.properties import parse_properties

SASL = Login("SASL_SSL", "alice", 'se"c\\ret', ca_file="/ca.pem")
TLS = Login("SSL", "alice", "secret", ca_file="/ca.pem", key_file="/alice.pem")


def test_a_login_by_password() -> None:
    assert java(SASL, "h:1") == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="se\\"c\\\\ret";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }
    assert librdkafka(SASL) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": 'se"c\\ret',
        "ssl.ca.location": "/ca.pem",
    }
    assert kafka_python(SASL) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'se"c\\ret',
        "ssl_cafile": "/ca.pem",
    }


def test_a_certificate() -> None:
    assert java(TLS)["ssl.keystore.type"] == "PKCS12"
    assert java(TLS)["ssl.keystore.location"] == "/alice.p12"
    assert java(TLS)["ssl.keystore.password"] == "secret"
    assert librdkafka(TLS)["ssl.key.location"] == librdkafka(TLS)["ssl.certificate.location"] == "/alice.pem"
    assert kafka_python(TLS)["ssl_password"] == "secret"
    assert not [key for settings in (java(TLS), librdkafka(TLS)) for key in settings if "sasl" in key]
    plain = java(TLS._replace(is_key_encrypted=False))
    assert (plain["ssl.keystore.type"], plain["ssl.keystore.location"]) == ("PEM", "/alice.pem")


def test_spark_has_the_java_properties_with_a_prefix() -> None:
    assert spark(SASL, "h:1") == {f"kafka.{key}": value for key, value in java(SASL, "h:1").items()}


@pytest.mark.parametrize("value", ["a\\b", " a", "a\nb", "", 'a"b'])
def test_a_properties_file_keeps_every_value(value: str) -> None:
    assert parse_properties(properties_text({"key": value})) == {"key": value}


def test_jaas_quotes() -> None:
    assert quoted('a"b\\') == '"a\\"b\\\\"'
