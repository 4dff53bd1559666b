"""How a node or a command logs in to others by GSSAPI, made from its settings.

Source: KerberosLogin, SaslClientAuthenticator (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.clock import Clock
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.gssapi import library
from barnabas.security.sasl.gssapi.client import GssapiClient
from barnabas.security.sasl.gssapi.krb5_login import Krb5Login, krb5_login, required_principal
from barnabas.security.sasl.gssapi.tickets import KeytabTickets, Renewal
from barnabas.security.sasl.mechanism import ClientMechanism
from barnabas.security.sasl.scopes import LOGIN_HANDLER, Scope


def login_by_ticket(scope: Scope, clock: Clock) -> Callable[[str], ClientMechanism]:
    """Return what begins a login to a host; raises ConfigError. The KDC is not asked yet."""
    if scope.own(LOGIN_HANDLER) is not None:
        raise ConfigError(f"{scope.name(LOGIN_HANDLER)}: GSSAPI has its tickets from the KDC")
    login = krb5_login(scope)
    tickets = _tickets(login, scope, clock)
    library.check_package()

    def begin(host: str) -> ClientMechanism:
        return GssapiClient(lambda: library.initiate(tickets(), login.service, host))

    return begin


def _tickets(login: Krb5Login, scope: Scope, clock: Clock) -> Callable[[], library.Ticket]:
    if login.uses_keytab:
        renewal = Renewal(
            float(scope.value("sasl.kerberos.ticket.renew.window.factor")),
            float(scope.value("sasl.kerberos.ticket.renew.jitter")),
            int(scope.value("sasl.kerberos.min.time.before.relogin")),
        )
        return KeytabTickets(library.ticket_of_keytab(required_principal(login), login.keytab), clock, renewal)
    if login.uses_cache:
        return library.ticket_of_cache(login.principal, login.ticket_cache)
    raise ConfigError(f'{login.name} needs useKeyTab="true" or useTicketCache="true": nobody is asked for a password')
