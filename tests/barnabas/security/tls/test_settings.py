"""TlsSettings: overrides of a listener, and contradictions."""

from __future__ import annotations

import pytest

from barnabas.config.errors import ConfigError
from barnabas.config.types import Password
from barnabas.security.tls.settings import settings_of

STORE = {"ssl.keystore.location": "/k", "ssl.keystore.password": "secret"}


def test_a_key_of_the_listener_overrides() -> None:
    originals = {
        **STORE,
        "listener.name.ssl.ssl.keystore.location": "/own",
        "listener.name.other.ssl.keystore.location": "/other",
        "ssl.client.auth": "required",
    }
    settings = settings_of(originals, "SSL")
    assert (settings.keystore_location, settings.keystore_password) == ("/own", Password("secret"))
    assert settings.client_auth == "required"
    assert settings.enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert "secret" not in repr(settings)


def test_with_sasl_only_the_listeners_own_key_asks_for_certificates() -> None:
    originals = {"ssl.client.auth": "required"}
    assert settings_of(originals, "SASL", is_sasl=True).client_auth == "none"
    originals["listener.name.sasl.ssl.client.auth"] = "requested"
    assert settings_of(originals, "SASL", is_sasl=True).client_auth == "requested"


@pytest.mark.parametrize(
    ("originals", "message"),
    [
        ({"ssl.keystore.type": "BCFKS"}, "ssl.keystore.type=BCFKS is not supported: it can be JKS, PKCS12, PEM"),
        ({"ssl.truststore.type": "x"}, "ssl.truststore.type=x"),
        ({"ssl.keystore.location": "/k"}, "but not ssl.keystore.password"),
        ({"ssl.keystore.password": "p"}, "but not ssl.keystore.location"),
        ({"ssl.keystore.key": "k", "ssl.keystore.type": "PEM"}, "need each other"),
        (
            {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"},
            "ssl.keystore.key needs ssl.keystore.type=PEM",
        ),
        (
            {"ssl.truststore.certificates": "c", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/t"},
            "only one of ssl.truststore.certificates and ssl.truststore.location",
        ),
        ({**STORE, "ssl.keystore.type": "PEM"}, "ssl.keystore.password cannot be set with ssl.keystore.type=PEM"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol=SSLv3 is not supported"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols: TLSv1.1 is not supported"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "it can be https or empty"),
        ({"ssl.cipher.suites": "ALL"}, "ssl.cipher.suites: ALL is not supported"),
        ({"listener.name.l.ssl.client.auth": "maybe"}, "listener.name.l.ssl.client.auth"),
    ],
)
def test_contradictions_are_one_line(originals: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(originals, "L")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
