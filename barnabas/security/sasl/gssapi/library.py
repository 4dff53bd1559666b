"""libkrb5's GSSAPI, by the package `gssapi`: the only module that imports it, and only when it is called.

Its errors become GssErrors, and its contexts `Context`s, so that the other modules can be tested without it. Only
Kerberos is accepted and offered, no other mechanism of GSSAPI.

libkrb5 follows krb5.conf (`KRB5_CONFIG` in the environment names another file) and keeps its replay cache in
`/var/tmp`. It reads a keytab at each login, so a new one on disk counts at once.

Threads: any. Credentials may be shared; a context belongs to one login. Calls of initiators may wait for the KDC;
those of acceptors do not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from barnabas.common.threads import HAS_GLOBAL_LOCK
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.gssapi.errors import FIRST_MINOR, NO_TICKETS, TICKET_EXPIRED, GssError

_NO_WORDS: Final = "Success"
_MS_PER_S: Final = 1000
_numbers: Final = itertools.count()  # of ticket caches in memory


class Context(Protocol):
    """One side of a login: a security context of GSSAPI."""

    @property
    def is_established(self) -> bool:
        """Whether both sides need no other token."""

    def step(self, token: bytes | None) -> bytes:
        """Take a token of the other side; return the next one, empty if none is due. Raises GssError."""

    def wrap(self, message: bytes) -> bytes:
        """Sign a message. Raises GssError."""

    def unwrap(self, token: bytes) -> bytes:
        """Return a message that the other side signed. Raises GssError."""

    def initiator(self) -> str:
        """Return the principal that began the login. Raises GssError."""


class Ticket(NamedTuple):
    """Credentials with which logins begin."""

    credentials: Any
    lifetime_ms: int


def check_package() -> None:
    """Raise ConfigError if GSSAPI cannot be used here."""
    if not HAS_GLOBAL_LOCK:  # importing it would turn the lock on
        raise ConfigError("GSSAPI needs the package gssapi, which a free-threaded interpreter cannot use")
    _package()


def default_realm() -> str:
    """Return the realm of krb5.conf; "" if there is none."""
    gssapi = _package()
    try:
        with _errors():
            name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except GssError:
        return ""
    return bytes(name).decode("utf-8", "replace").partition("@")[2]


def acceptor(principal: str, keytab: str | None) -> Callable[[], Context]:
    """Return what begins the server's side; raises GssError if the keytab has no key for the principal.

    Without `keytab`, it is that of krb5.conf.
    """
    gssapi = _package()
    with _errors():
        credentials = gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
            usage="accept",
            mechs=[gssapi.MechType.kerberos],
            store={"keytab": f"FILE:{keytab}"} if keytab else None,
        )
    return lambda: _Context(gssapi.SecurityContext(creds=credentials, usage="accept"))


def ticket_of_keytab(principal: str, keytab: str | None) -> Callable[[], Ticket]:
    """Return what gets a new ticket from the KDC with a key; that raises GssError.

    Why two caches in turn: a login may still use the last ticket, and libkrb5 never frees the memory of a named
    cache.
    """
    names = itertools.cycle([f"MEMORY:barnabas-{os.getpid()}-{next(_numbers)}" for _ in range(2)])

    def get() -> Ticket:
        store = {"ccache": next(names)}
        if keytab:
            store["client_keytab"] = f"FILE:{keytab}"
        try:
            return _ticket(principal, store)
        except GssError as error:
            if error.code in NO_TICKETS:  # nothing filled the cache
                where = f"the keytab {keytab}" if keytab else "the keytab of krb5.conf"
                raise GssError(f"{where} has no key for {principal}: see klist -k") from error
            raise

    return get


def ticket_of_cache(principal: str | None, ticket_cache: str | None) -> Callable[[], Ticket]:
    """Return what reads the ticket that kinit has got; that raises GssError. None: the default cache."""
    return lambda: _ticket(principal, {"ccache": ticket_cache} if ticket_cache else None)


def initiate(ticket: Ticket, service: str, host: str) -> Context:
    """Begin the client's side of a login to a service on a host, which must prove its identity, too."""
    gssapi = _package()
    flags = gssapi.RequirementFlag
    with _errors():
        return _Context(
            gssapi.SecurityContext(
                name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
                creds=ticket.credentials,
                mech=gssapi.MechType.kerberos,
                flags=[flags.mutual_authentication, flags.integrity, flags.out_of_sequence_detection],
                usage="initiate",
            )
        )


class _Context:
    """See Context."""

    def __init__(self, context: Any) -> None:
        self._context = context  # owner: the login
        # Why: otherwise the package returns a token that reports the error, and raises it at a later call.
        context.__DEFER_STEP_ERRORS__ = False

    @property
    def is_established(self) -> bool:
        with _errors():
            return bool(self._context.complete)

    def step(self, token: bytes | None) -> bytes:
        with _errors():
            return self._context.step(token) or b""

    def wrap(self, message: bytes) -> bytes:
        with _errors():
            return bytes(self._context.wrap(message, False).message)

    def unwrap(self, token: bytes) -> bytes:
        with _errors():
            return bytes(self._context.unwrap(token).message)

    def initiator(self) -> str:
        with _errors():
            shown = bytes(self._context.initiator_name)
        try:
            name = shown.decode()
        except UnicodeDecodeError as error:
            raise GssError("the principal is not UTF-8") from error
        if "\\" in name:  # Why: what libkrb5 escapes (@, /, blanks) would be taken for parts of another principal
            raise GssError(f"the principal {name} has characters that cannot be mapped to a user")
        return name


def _ticket(principal: str | None, store: dict[str, str] | None) -> Ticket:
    gssapi = _package()
    with _errors():
        credentials = gssapi.Credentials(
            name=None if principal is None else gssapi.Name(principal, gssapi.NameType.kerberos_principal),
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store=store,
        )
        return Ticket(credentials, int(credentials.lifetime) * _MS_PER_S)  # only now the KDC is asked


@contextmanager
def _errors() -> Iterator[None]:
    gssapi = _package()
    try:
        yield
    except gssapi.exceptions.GSSError as error:
        minor = error.min_code
        words = [text for text in error.get_all_statuses(minor, False) if minor and text != _NO_WORDS]
        if isinstance(error, gssapi.exceptions.ExpiredCredentialsError):
            minor = FIRST_MINOR + TICKET_EXPIRED
        raise GssError("; ".join(words or error.get_all_statuses(error.maj_code, True)), minor) from error


@cache
def _package() -> Any:
    try:
        import gssapi
        import gssapi.exceptions
    except ImportError as error:
        raise ConfigError(
            f"GSSAPI needs the package gssapi ({error}): install it with pip install 'barnabas[gssapi]'; to build it, "
            "libkrb5's headers must be there (Debian: libkrb5-dev gcc)"
        ) from error
    return gssapi
