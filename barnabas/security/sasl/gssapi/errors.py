"""Errors of libkrb5 in one line, with what to change.

libkrb5's own words name the principal or the file, but seldom the cause. Its numbers are those of RFC 4120 (section
7.5.9) up to 127, and its own above (krb5_err.et).

Threads: any; pure.
"""

from __future__ import annotations

from typing import Final

#: The first number of libkrb5's table of errors, as the 32 bits without a sign that GSSAPI shows.
FIRST_MINOR: Final = 0x96C73A00
_TABLE_SIZE: Final = 256
_WORDS_MAX: Final = 300

UNKNOWN_CLIENT: Final = 6
UNKNOWN_SERVICE: Final = 7
CLIENT_NOT_YET_VALID: Final = 21
PREAUTHENTICATION_FAILED: Final = 24
BAD_INTEGRITY: Final = 31
TICKET_EXPIRED: Final = 32
TICKET_NOT_YET_VALID: Final = 33
REPLAY: Final = 34
SKEW: Final = 37
BAD_KEY_VERSION: Final = 44
NO_REALM_FOUND: Final = 154
NO_KDC_ANSWERS: Final = 156
NO_KEY_IN_KEYTAB: Final = 181
NO_TICKET_CACHE_FOUND: Final = 141
NO_TICKET_CACHE: Final = 195
NO_DEFAULT_REALM: Final = 224

#: Errors that are gone at the next try, as in Kafka (KerberosError).
TRANSIENT: Final = frozenset({CLIENT_NOT_YET_VALID, TICKET_NOT_YET_VALID, REPLAY})

#: There is no ticket, whether or not there is a file for it.
NO_TICKETS: Final = frozenset({NO_TICKET_CACHE_FOUND, NO_TICKET_CACHE})

_OLD_KEY: Final = "the keytab has an old or another key: export it again from the KDC"
_NO_TICKET: Final = "get a ticket with kinit"
_ADVICE: Final = {
    UNKNOWN_CLIENT: "the KDC does not know this principal",
    UNKNOWN_SERVICE: (
        "the KDC does not know the service: sasl.kerberos.service.name and the name of the host must be those of the "
        "principal in the other node's keytab"
    ),
    PREAUTHENTICATION_FAILED: _OLD_KEY,
    BAD_INTEGRITY: _OLD_KEY,
    TICKET_EXPIRED: "the ticket has expired: get a new one with kinit, or compare the clocks of the machines",
    TICKET_NOT_YET_VALID: "compare the clocks of the machines",
    SKEW: "the clocks of this machine, the other one and the KDC differ too much: synchronize them",
    BAD_KEY_VERSION: _OLD_KEY,
    NO_REALM_FOUND: "name the realm's KDC in krb5.conf (KRB5_CONFIG names another file)",
    NO_KDC_ANSWERS: "no KDC of the realm answers: see kdc of the realm in krb5.conf",
    NO_KEY_IN_KEYTAB: "the keytab has no key for this principal: see klist -k",
    NO_TICKET_CACHE_FOUND: _NO_TICKET,
    NO_TICKET_CACHE: _NO_TICKET,
    NO_DEFAULT_REALM: "set default_realm in krb5.conf, or write the principal with its realm",
}


def shown(words: str) -> str:
    """Return words that may have a stranger's names in them as a part of a line."""
    cut = words[:_WORDS_MAX]
    return cut if cut.isprintable() else ascii(cut)


class GssError(Exception):
    """A call of libkrb5 failed. `code` is its number in libkrb5's table; None if it is of another table."""

    def __init__(self, words: str, minor: int = 0) -> None:
        """Take libkrb5's words and its minor status, 32 bits without a sign."""
        self._words, self._minor = words, minor
        code = minor - FIRST_MINOR
        self.code = code if 0 <= code < _TABLE_SIZE else None
        advice = None if self.code is None else _ADVICE.get(self.code)
        super().__init__(shown(words) if advice is None else f"{shown(words)} ({advice})")

    def again(self) -> GssError:
        """Return the same error for another caller. Why: each time one is raised, its traceback grows."""
        return GssError(self._words, self._minor)

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed in a moment."""
        return self.code in TRANSIENT
