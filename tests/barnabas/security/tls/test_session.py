"""TlsSession: two ends in memory; what fails is an error of security/tls/errors.py."""

from __future__ import annotations

import pytest

from barnabas.security.tls.contexts import client_context, server_context
from barnabas.security.tls.errors import TlsError
from barnabas.security.tls.session import TlsSession
from barnabas.security.tls.settings import settings_of
from barnabas.security.tls.stores import KeyEntry
from tests.support.certificates import Authority, Identity

AUTHORITY = Authority()


def entry_of(identity: Identity) -> KeyEntry:
    return KeyEntry(identity.key, (identity.certificate, identity.authority))


def pair(*, client: Identity | None = None, server_name: str = "localhost", **values: str) -> list[TlsSession]:
    settings = settings_of({f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}, "L")
    trusted = (AUTHORITY.certificate,)
    at_server = server_context(settings, entry_of(AUTHORITY.issue("server")), trusted)
    at_client = client_context(settings, entry_of(client) if client else None, trusted)
    return [
        TlsSession(at_client, is_server=False, server_hostname=server_name),
        TlsSession(at_server, is_server=True),
    ]


def connect(client: TlsSession, server: TlsSession) -> None:
    for _ in range(5):
        for one, other in ((client, server), (server, client)):
            if not one.is_established:
                one.handshake()
            if one.has_output():
                other.receive(one.take_output())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_many_records_in_one_piece(version: str) -> None:
    client, server = pair(enabled_protocols=version)
    connect(client, server)
    assert client.cipher()[1] == server.cipher()[1] == version
    data = bytes(range(256)) * 400
    client.write(data)
    server.receive(client.take_output())
    buffer = memoryview(bytearray(len(data) - 10))
    assert server.read_into(buffer) == len(buffer)
    assert server.has_input()
    rest = memoryview(bytearray(100))
    assert server.read_into(rest) == 10
    assert bytes(buffer) + bytes(rest[:10]) == data
    assert not server.has_input()
    assert server.read_into(rest) == 0
    assert not server.is_ended


def test_a_record_may_come_in_pieces() -> None:
    client, server = pair()
    connect(client, server)
    client.write(b"hello")
    encrypted = client.take_output()
    buffer = memoryview(bytearray(100))
    counts = []
    for index in range(len(encrypted)):
        server.receive(encrypted[index : index + 1])
        counts.append(server.read_into(buffer))
    assert counts == [0] * (len(encrypted) - 1) + [5]


def test_the_end_of_a_session_is_seen() -> None:
    client, server = pair()
    connect(client, server)
    client.write(b"bye")
    server.receive(client.take_output() + client.close())
    buffer = memoryview(bytearray(100))
    assert server.read_into(buffer) == 3
    assert server.is_ended


def test_the_name_of_the_client() -> None:
    client, server = pair(client=AUTHORITY.issue("alice"), client_auth="required")
    connect(client, server)
    assert server.peer_name() == "O=Barnabas,CN=alice"


def test_without_a_certificate_there_is_no_name() -> None:
    client, server = pair(client_auth="requested")
    connect(client, server)
    assert server.peer_name() is None


def test_a_required_certificate_is_missing_or_of_a_stranger() -> None:
    for identity in (None, Authority("stranger").issue("mallory")):
        client, server = pair(client=identity, client_auth="required")
        with pytest.raises(TlsError):
            connect(client, server)


def test_another_host_is_refused() -> None:
    client, server = pair(server_name="other.example")
    with pytest.raises(TlsError, match="Hostname mismatch"):
        connect(client, server)
    client, server = pair(server_name="other.example", endpoint_identification_algorithm="")
    connect(client, server)
    assert client.is_established
