"""Cipher suites: Java's names as OpenSSL's."""

from __future__ import annotations

import ssl

import pytest

from barnabas.security.tls.ciphers import TLS_1_3, openssl_name


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
