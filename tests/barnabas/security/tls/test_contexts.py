"""SSLContexts: versions, suites, client certificates, trust, and keys that are on no disk."""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

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
        ({"cipher_suites": "TLS_AES_128_GCM_SHA256"}, ("TLSv1_3", "TLSv1_3")),
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


class End:
    """One end of a connection in memory; what the other one has written is in `incoming`."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool, session: ssl.SSLSession | None = None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if is_server else "localhost"
        self.ssl = context.wrap_bio(self.incoming, self.outgoing, is_server, name, session)

    def step(self, other: End) -> None:
        """Do what is possible, and hand the output to the other end."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.ssl.do_handshake()
            self.ssl.write(b"x")
            self.ssl.read(1)
        other.incoming.write(self.outgoing.read())


def connected(at_server: ssl.SSLContext, at_client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> list[End]:
    """Return the two ends of a new connection; the client has its ticket."""
    ends = [End(at_client, is_server=False, session=session), End(at_server, is_server=True)]
    for _ in range(4):
        ends[0].step(ends[1])
        ends[1].step(ends[0])
    return ends


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_session_is_resumed_wherever_its_context_is_used(version: str) -> None:
    """All processors of a listener have one context, so a client resumes its session with any of them."""
    first, renewed = (server(enabled_protocols=version, client_auth="required") for _ in range(2))
    client = client_context(settings_of({}, "L"), ENTRY, (AUTHORITY.certificate,))
    session = connected(first, client)[0].ssl.session
    assert session is not None
    assert session.has_ticket
    for context, is_resumed in ((first, True), (renewed, False)):
        ours = connected(context, client, session)[1].ssl
        assert ours.session_reused is is_resumed
        assert ours.getpeercert(binary_form=True) is not None  # so that it has its principal


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
    before = set(os.listdir("/proc/self/fd"))
    server()
    assert set(os.listdir("/proc/self/fd")) <= before
    assert list(tmp_path.iterdir()) == []


def test_what_openssl_finds_too_weak_is_said_in_words() -> None:
    weak = AUTHORITY.issue("weak", key=rsa.generate_private_key(65537, 1024))
    entry = KeyEntry(weak.key, (weak.certificate, AUTHORITY.certificate))
    with pytest.raises(ConfigError) as caught:
        server_context(settings_of({}, "L"), entry, (AUTHORITY.certificate,))
    assert str(caught.value) == "OpenSSL refuses the key or its certificate: the key is too short (EE_KEY_TOO_SMALL)"
