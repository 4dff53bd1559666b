"""SSLContexts: versions, suites, client certificates, trust, and keys that are on no disk."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from barnabas.config.errors import ConfigError
from barnabas.security.tls.contexts import client_context, server_context
from barnabas.security.tls.settings import settings_of
from barnabas.security.tls.stores import KeyEntry
from tests.support.certificates import Authority

AUTHORITY = Authority()
ONE = AUTHORITY.issue("one")
ENTRY = KeyEntry(ONE.key, (ONE.certificate, AUTHORITY.certificate))


def server(**values: str) -> ssl.SSLContext:
    settings = settings_of({f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}, "L")
    return server_context(settings, ENTRY, (AUTHORITY.certificate,))


@pytest.mark.parametrize(
    ("values", "versions"),
    [
        ({}, ("TLSv1_2", "TLSv1_3")),
        ({"enabled_protocols": "TLSv1.3"}, ("TLSv1_3", "TLSv1_3")),
        ({"cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"}, ("TLSv1_2", "TLSv1_2")),
        (
            {"cipher_suites": "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"},
            ("TLSv1_3", "TLSv1_3"),
        ),
    ],
)
def test_versions(values: dict[str, str], versions: tuple[str, str]) -> None:
    context = server(**values)
    assert (context.minimum_version.name, context.maximum_version.name) == versions
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_suites_without_a_version() -> None:
    with pytest.raises(ConfigError, match="no suite for the versions"):
        server(enabled_protocols="TLSv1.3", cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")


def test_client_certificates() -> None:
    modes = {value: server(client_auth=value).verify_mode for value in ("none", "requested", "required")}
    assert modes == {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def test_names_of_hosts_are_compared_unless_the_algorithm_is_empty() -> None:
    contexts = [
        client_context(
            settings_of({"ssl.endpoint.identification.algorithm": text}, "L"), None, (AUTHORITY.certificate,)
        )
        for text in ("https", "")
    ]
    assert [context.check_hostname for context in contexts] == [True, False]
    assert {context.verify_mode for context in contexts} == {ssl.CERT_REQUIRED}


def test_a_key_is_read_from_memory_and_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.listdir("/proc/self/fd")
    server()
    assert os.listdir("/proc/self/fd") == before
    assert list(tmp_path.iterdir()) == []
