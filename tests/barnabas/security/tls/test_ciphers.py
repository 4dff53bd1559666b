"""Cipher suites: Java's names as OpenSSL's; a choice among those of TLS 1.3."""

from __future__ import annotations

import ssl

import pytest

from barnabas.config.errors import ConfigError
from barnabas.security.tls.ciphers import TLS_1_3, choose_tls_1_3, openssl_name
from barnabas.security.tls.errors import TlsError
from tests.barnabas.security.tls.test_contexts import server
from tests.barnabas.security.tls.test_session import connect, pair

OLDER = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_CHACHA20_POLY1305_SHA256", None),
        ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", None),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:ALL", None),
        ("ECDHE-RSA-AES128-GCM-SHA256", None),
    ],
)
def test_names(java: str, openssl: str | None) -> None:
    assert openssl_name(java) == openssl
    if openssl:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(openssl)
        assert openssl in {cipher["name"] for cipher in context.get_ciphers()}


def test_the_suites_of_tls_1_3_are_those_of_openssl() -> None:
    offered = {c["name"] for c in ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).get_ciphers() if c["protocol"] == "TLSv1.3"}
    assert offered == TLS_1_3


@pytest.mark.parametrize("suite", sorted(TLS_1_3))
def test_a_connection_uses_the_chosen_suite(suite: str) -> None:
    at_client, at_server = pair(cipher_suites=suite)
    connect(at_client, at_server)
    assert at_server.cipher() == (suite, "TLSv1.3")


def test_the_suites_of_tls_1_2_stay() -> None:
    context = server(cipher_suites=f"TLS_AES_128_GCM_SHA256,{OLDER}")
    offered = {cipher["name"] for cipher in context.get_ciphers()}
    assert offered == {"TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"}


def test_ends_without_a_common_suite_do_not_connect() -> None:
    at_client, _ = pair(cipher_suites="TLS_AES_128_GCM_SHA256")
    _, at_server = pair(cipher_suites="TLS_AES_256_GCM_SHA384")
    with pytest.raises(TlsError, match="no shared cipher"):
        connect(at_client, at_server)


def test_the_other_contexts_stay() -> None:
    server(cipher_suites="TLS_AES_128_GCM_SHA256")
    assert {cipher["name"] for cipher in server().get_ciphers()} > TLS_1_3


class LaterContext(ssl.SSLContext):
    """The context of Python 3.15, as far as suites are concerned."""

    def set_ciphersuites(self, suites: str) -> None:
        self.suites = suites

    def get_ciphers(self) -> list[dict[str, str]]:  # type: ignore[override]
        return [{"name": name, "protocol": "TLSv1.3"} for name in self.suites.split(":")]


def test_the_interpreters_own_call_is_preferred() -> None:
    context = LaterContext(ssl.PROTOCOL_TLS_SERVER)
    assert choose_tls_1_3(context, ["TLS_AES_128_GCM_SHA256"])
    assert context.suites == "TLS_AES_128_GCM_SHA256"


def test_an_interpreter_of_another_kind_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.implementation.name", "pypy")
    with pytest.raises(ConfigError, match=r"cannot choose among the suites of TLS 1\.3; list all of them"):
        server(cipher_suites="TLS_AES_128_GCM_SHA256")
