"""The JAAS entry of GSSAPI: Krb5LoginModule of the JDK or of IBM's, and the name of the service.

| option | stands for |
|---|---|
| `useKeyTab="true"`, `keyTab`, `principal` | a key of this principal; without `keyTab` that of krb5.conf |
| `useKeytab="file:…"` | the same, for IBM's module alone |
| `useTicketCache="true"`, `ticketCache`, `principal` | the ticket that kinit has got, for clients only |
| `serviceName` | sasl.kerberos.service.name |

The other options of the module have no meaning here (`storeKey`, `doNotPrompt`, `debug` …): nobody is ever asked for a
password, and keys are read when they are needed.

Source: KerberosLogin.getServiceName (Kafka 4.3), Krb5LoginModule of the JDK.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.config.errors import ConfigError
from barnabas.config.secrets.exposed import is_exposed
from barnabas.security.sasl.scopes import JAAS, Scope

log = logging.getLogger("barnabas.sasl")

SERVICE_KEY: Final = "sasl.kerberos.service.name"
_FILE: Final = "file:"
_IBM: Final = "com.ibm."
_IBM_KEYTAB: Final = "useKeytab"


class Krb5Login(NamedTuple):
    """The entry."""

    name: str  # of the setting, for errors
    service: str
    principal: str | None
    uses_keytab: bool
    keytab: str | None  # None: that of krb5.conf
    uses_cache: bool
    ticket_cache: str | None  # None: that of krb5.conf


def krb5_login(scope: Scope) -> Krb5Login:
    """Return the entry of a listener and mechanism; raises ConfigError."""
    module, name = scope.required_login_module(), scope.name(JAAS)
    options = module.options
    ibm_keytab = options.get(_IBM_KEYTAB) if module.name.startswith(_IBM) else None
    own, common = options.get("serviceName"), scope.value(SERVICE_KEY)
    if own and common and own != common:
        raise ConfigError(f"{name} has serviceName={own}, but {SERVICE_KEY} is {common}: keep one of them")
    service = own or common
    if not service:
        raise ConfigError(f"listener {scope.listener} uses GSSAPI, so {SERVICE_KEY} must be set")
    return Krb5Login(
        name,
        service,
        options.get("principal") or None,
        _is_true(options.get("useKeyTab")) or ibm_keytab is not None,
        _path(options.get("keyTab") or ibm_keytab),
        _is_true(options.get("useTicketCache")),
        options.get("ticketCache") or None,
    )


def required_principal(login: Krb5Login) -> str:
    """Return the principal whose key is used, after a check of the keytab; raises ConfigError."""
    if login.principal is None:
        raise ConfigError(f'{login.name} needs principal="{login.service}/HOST@REALM", whose key the keytab has')
    if login.keytab is not None:
        reason = _unreadable(login.keytab)
        if reason is not None:
            raise ConfigError(f"{login.name}: cannot read the keytab {login.keytab}: {reason}")
        _warn_of_readers(login.keytab)
    return login.principal


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def _path(text: str | None) -> str | None:
    if text is not None and text.lower().startswith(_FILE):
        text = text[len(_FILE) :].removeprefix("//")
    return text or None


@cache
def _warn_of_readers(path: str) -> None:
    """Warn once of a keytab that other users of the machine can read."""
    if is_exposed(Path(path)):
        log.warning("every user can read the keytab %s: change its mode to 600", path)


def _unreadable(path: str) -> str | None:
    """Return why a file cannot be read; None if it can. Why: libkrb5 says the same of a key that a keytab lacks."""
    try:
        os.stat(path)
    except OSError as error:
        return error.strerror
    return None if os.access(path, os.R_OK) else "Permission denied"
