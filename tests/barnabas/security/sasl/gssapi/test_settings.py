"""GSSAPI from settings, without libkrb5; tests/clients/test_gssapi.py has it with a KDC.

Tests krb5_login.py, server_settings.py, client_settings.py, and of library.py what needs no package.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.common.clock import FakeClock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.gssapi import krb5_login as krb5_login_module
from barnabas.security.sasl.gssapi import library
from barnabas.security.sasl.gssapi.client_settings import login_by_ticket
from barnabas.security.sasl.gssapi.errors import GssError
from barnabas.security.sasl.gssapi.krb5_login import krb5_login
from barnabas.security.sasl.gssapi.library import Context, Ticket
from barnabas.security.sasl.gssapi.server_settings import kerberos_server
from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.scopes import MODULES, Scope
from tests.barnabas.security.sasl.gssapi.contexts import SIGNED, acceptor, initiator

L = "listener.name.outside.gssapi."
MODULE, IBM_MODULE = MODULES["GSSAPI"]
SERVICE = "sasl.kerberos.service.name"


def scope(jaas: str | None, **more: str) -> Scope:
    own = {} if jaas is None else {f"{L}sasl.jaas.config": jaas if jaas.endswith(";") else f"{MODULE} required {jaas};"}
    named = {key.replace("_", "."): text for key, text in more.items()}
    return Scope(Config({"node.id": "1", SERVICE: "kafka", **own, **named}), "OUTSIDE", "GSSAPI")


@pytest.fixture
def keytab(tmp_path: Path) -> Path:
    path = tmp_path / "kafka.keytab"
    path.write_bytes(b"")
    path.chmod(0o600)
    return path


class Library:
    """What the settings ask libkrb5 for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, ...]] = []
        self.error: GssError | None = None

    def acceptor(self, principal: str, keytab: str | None) -> Callable[[], Context]:
        self.asked.append((principal, keytab))
        if self.error is not None:
            raise self.error
        return acceptor

    def ticket(self, principal: str | None, where: str | None) -> Callable[[], Ticket]:
        self.asked.append((principal, where))
        return lambda: Ticket(None, 1000)

    def initiate(self, _ticket: Ticket, service: str, host: str) -> Context:
        self.asked.append((service, host))
        if self.error is not None:
            raise self.error
        return initiator()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(library, "check_package", lambda: None)
    monkeypatch.setattr(library, "default_realm", lambda: "R")
    monkeypatch.setattr(library, "acceptor", made.acceptor)
    monkeypatch.setattr(library, "ticket_of_keytab", made.ticket)
    monkeypatch.setattr(library, "ticket_of_cache", made.ticket)
    monkeypatch.setattr(library, "initiate", made.initiate)
    return made


def test_a_listener_and_a_node(fake: Library, keytab: Path) -> None:
    own = scope(f'useKeyTab=true storeKey=true keyTab="FILE:{keytab}" principal="kafka/h@R"')
    server, client = kerberos_server(own)(), login_by_ticket(own, FakeClock())("other.example.com")
    token: bytes | None = client.first()
    while token is not None:
        token = client.evaluate(server.evaluate(token) or b"")
    assert client.is_complete
    assert server.identity is not None
    assert server.identity.principal == "User:alice"
    assert fake.asked == [("kafka/h@R", str(keytab)), ("kafka/h@R", str(keytab)), ("kafka", "other.example.com")]


def test_rules_of_the_listener(fake: Library, keytab: Path) -> None:
    jaas = f'useKeyTab=true keyTab="{keytab}" principal="kafka/h@R"'
    rules = {"listener.name.outside.sasl.kerberos.principal.to.local.rules": "RULE:[1:x-$1](x-.*)/U,DEFAULT"}
    server = kerberos_server(scope(jaas, **rules))()
    server.evaluate(b"ticket")
    server.evaluate(b"")
    server.evaluate(SIGNED + b"\x01\0\0\0")
    assert server.identity is not None
    assert server.identity.principal == "User:X-ALICE"
    with pytest.raises(ConfigError, match="invalid rule"):
        kerberos_server(scope(jaas, sasl_kerberos_principal_to_local_rules="default"))


def test_a_ticket_cache(fake: Library) -> None:
    login_by_ticket(scope('useTicketCache=true ticketCache="/tmp/c" principal="alice@R"'), FakeClock())
    login_by_ticket(scope("useTicketCache=TRUE"), FakeClock())
    assert fake.asked == [("alice@R", "/tmp/c"), (None, None)]


def test_the_module_of_ibms_java(fake: Library, keytab: Path) -> None:
    login_by_ticket(scope(f'{IBM_MODULE} required useKeytab="file://{keytab}" principal="alice@R";'), FakeClock())
    assert fake.asked == [("alice@R", f"{keytab}")]


def test_the_module_of_the_jdk_ignores_ibms_option() -> None:
    login = krb5_login(scope("useTicketCache=true useKeytab=true"))
    assert (login.uses_keytab, login.keytab, login.uses_cache) == (False, None, True)


def test_the_name_of_the_service(fake: Library) -> None:
    assert krb5_login(scope("serviceName=kafka")).service == "kafka"
    assert krb5_login(scope("serviceName=other", **{SERVICE: ""})).service == "other"
    with pytest.raises(ConfigError, match=r"serviceName=other, but sasl\.kerberos\.service\.name is kafka"):
        krb5_login(scope("serviceName=other"))
    with pytest.raises(ConfigError, match=r"uses GSSAPI, so sasl\.kerberos\.service\.name must be set"):
        krb5_login(scope("useKeyTab=true", **{SERVICE: ""}))


@pytest.mark.parametrize(
    ("jaas", "more", "words"),
    [
        (None, {}, r"gssapi\.sasl\.jaas\.config must be set; it is the default of sasl\.enabled\.mechanisms"),
        ("org.example.Module required;", {}, "org.example.Module is no login module of GSSAPI"),
        ("useTicketCache=true", {}, "a listener proves its identity by a key"),
        ("useKeyTab=true", {}, 'needs principal="kafka/HOST@REALM"'),
        ('useKeyTab=true principal="a" keyTab="/nosuch/k"', {}, "cannot read the keytab /nosuch/k: No such file"),
        ("useKeyTab=true", {f"{L}sasl.server.callback.handler.class": "os:path"}, "are known to the KDC"),
    ],
)
def test_a_listener_that_cannot_work_is_refused(
    fake: Library, jaas: str | None, more: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        kerberos_server(scope(jaas, **more))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("jaas", "more", "words"),
    [
        ("debug=true", {}, "nobody is asked for a password"),
        ("useKeyTab=true", {}, "needs principal="),
        ("useKeyTab=true", {f"{L}sasl.login.callback.handler.class": "os:path"}, "has its tickets from the KDC"),
    ],
)
def test_a_login_that_cannot_work_is_refused(fake: Library, jaas: str, more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        login_by_ticket(scope(jaas, **more), FakeClock())


def test_a_keytab_without_the_key(fake: Library, keytab: Path) -> None:
    fake.error = GssError("No key table entry found for kafka/h@R")
    with pytest.raises(ConfigError, match="no client can log in to kafka/h@R: No key table entry"):
        kerberos_server(scope(f'useKeyTab=true keyTab="{keytab}" principal="kafka/h@R"'))


def test_a_login_that_fails_says_why(fake: Library) -> None:
    fake.error = GssError("Server not found")
    with pytest.raises(AuthenticationError, match="Server not found"):
        login_by_ticket(scope("useTicketCache=true"), FakeClock())("h").first()


def test_a_keytab_that_all_can_read_is_warned_of_once(
    fake: Library, keytab: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(krb5_login_module, "is_exposed", lambda _path: True)
    own = scope(f'useKeyTab=true keyTab="{keytab}" principal="kafka/h@R"')
    with caplog.at_level(logging.WARNING, "barnabas.sasl"):
        kerberos_server(own)
        login_by_ticket(own, FakeClock())
    assert [record.getMessage() for record in caplog.records] == [
        f"every user can read the keytab {keytab}: change its mode to 600"
    ]


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    library._package.cache_clear()
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'barnabas\[gssapi\]'") as caught:
        library.check_package()
    assert "\n" not in str(caught.value)


def test_a_free_threaded_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "HAS_GLOBAL_LOCK", False)
    with pytest.raises(ConfigError, match="free-threaded"):
        library.check_package()
