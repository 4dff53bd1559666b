"""How clients log in by GSSAPI, made from the settings of a listener.

Source: SaslChannelBuilder, SaslServerAuthenticator.createSaslKerberosServer (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.config.errors import ConfigError
from barnabas.security.sasl.gssapi import library
from barnabas.security.sasl.gssapi.errors import GssError
from barnabas.security.sasl.gssapi.krb5_login import krb5_login, required_principal
from barnabas.security.sasl.gssapi.names import ShortNamer
from barnabas.security.sasl.gssapi.server import GssapiServer
from barnabas.security.sasl.mechanism import ServerMechanism
from barnabas.security.sasl.scopes import JAAS, SERVER_HANDLER, Scope


def kerberos_server(scope: Scope) -> Callable[[], ServerMechanism]:
    """Return what begins a login; raises ConfigError."""
    if scope.own(JAAS) is None:
        raise ConfigError(
            f"listener {scope.listener} uses {scope.mechanism}, so {scope.name(JAAS)} must be set; it is the default "
            "of sasl.enabled.mechanisms, which can name others"
        )
    if scope.own(SERVER_HANDLER) is not None:
        raise ConfigError(f"{scope.name(SERVER_HANDLER)}: the clients of GSSAPI are known to the KDC")
    login = krb5_login(scope)
    if not login.uses_keytab:
        raise ConfigError(f'{login.name} needs useKeyTab="true" and keyTab: a listener proves its identity by a key')
    principal = required_principal(login)
    library.check_package()
    names = ShortNamer(scope.value("sasl.kerberos.principal.to.local.rules"), library.default_realm())
    try:
        accept = library.acceptor(principal, login.keytab)
    except GssError as error:
        raise ConfigError(f"{login.name}: no client can log in to {principal}: {error}") from error
    return lambda: GssapiServer(accept(), names.short_name)
