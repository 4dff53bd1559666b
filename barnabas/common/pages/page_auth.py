"""The check of the credentials of a request for a page.

Rules
1. A credential is compared with each accepted one by digests.is_equal: the time says nothing about where it differs,
   nor about which of them is near.
2. Failed tries are bounded for each address: TRIES_MAX at once, then one more every TRY_MS. Beyond that, tries are
   refused unseen, right ones too; otherwise the answer would still tell which one is right. Bearer and Basic have
   bounds of their own, so that guesses of a password never stop a scraper with a token.
3. At most ADDRESSES_MAX addresses are known; the one that failed first is forgotten. IPv6 addresses count by their
   first 64 bits, since a host has all of the rest.
4. A request without credentials gets the challenge, and is no try.

Threads: any; `_lock` guards the tries.
Source: RFC 9110 section 11, RFC 6750, RFC 7617.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.common import digests
from barnabas.common.clock import Clock
from barnabas.common.pages.page import Page
from barnabas.common.pages.page_access import CHANGE_KEY, TOKEN_KEY, Credentials

log = logging.getLogger("barnabas.metrics")

TRIES_MAX: Final = 10
TRY_MS: Final = 6_000
ADDRESSES_MAX: Final = 1024
_CREDENTIAL_MAX: Final = 4096  # bytes
_SCHEMES: Final = frozenset({"basic", "bearer"})
_PREFIX_BITS: Final = 64

_UNKNOWN: Final = Page(
    b"this page asks for credentials\n",
    status="401 Unauthorized",
    headers=(
        ("WWW-Authenticate", 'Bearer realm="barnabas"'),
        ("WWW-Authenticate", 'Basic realm="barnabas", charset="UTF-8"'),
    ),
)
_TOO_MANY: Final = Page(
    b"too many failed tries\n",
    status="429 Too Many Requests",
    headers=(("Retry-After", str(TRY_MS // 1000)),),
)


_UNCHANGEABLE: Final = Page(
    json.dumps({"error": f"nothing can be changed here: set {CHANGE_KEY}, or {TOKEN_KEY}"}).encode() + b"\n",
    "application/json",
    status="403 Forbidden",
)


class PageAuth:
    """Accepts the credentials of `page_access.credentials`."""

    def __init__(self, accepted: Sequence[str], clock: Clock) -> None:
        assert accepted, "pages without credentials have no PageAuth"
        self._accepted = tuple(_parsed(text) for text in accepted)  # fixed before start
        self._clock = clock  # fixed before start
        self._lock = threading.Lock()
        self._tries: dict[tuple[str, str], tuple[float, int]] = {}  # guarded by: _lock; tries left, at which time

    def refusal(self, headers: Sequence[str], address: str) -> Page | None:
        """Return the answer to a request with these Authorization headers; None to allow it."""
        if len(headers) != 1:
            return _UNKNOWN
        scheme, given = _parsed(headers[0])
        if scheme not in _SCHEMES:
            return _UNKNOWN
        source = (_network(address), scheme)
        with self._lock:
            left = self._left(source)
            if left < 1:
                return _TOO_MANY
            if self._is_accepted(scheme, given):
                return None
            if source not in self._tries and len(self._tries) >= ADDRESSES_MAX:
                del self._tries[next(iter(self._tries))]
            self._tries[source] = (left - 1, self._clock.monotonic_ms())
        log.warning("refused a request for a page from %s: wrong %s credentials", address, scheme)
        return _UNKNOWN

    def _is_accepted(self, scheme: str, given: bytes) -> bool:
        """Rule 1: each accepted one is looked at."""
        matches = [digests.is_equal(given, known) for known_scheme, known in self._accepted if known_scheme == scheme]
        return any(matches)

    def _left(self, source: tuple[str, str]) -> float:
        """Return the tries that are left now; fewer than 1 is none."""
        left, at_ms = self._tries.get(source, (float(TRIES_MAX), 0))
        if source in self._tries:
            left = min(TRIES_MAX, left + (self._clock.monotonic_ms() - at_ms) / TRY_MS)
        return left


class Auths(NamedTuple):
    """The checks of those who read and of those who change something; each has tries of its own (rule 2)."""

    of_readers: PageAuth | None  # None: everybody may read
    of_changers: PageAuth | None  # None: nothing can be changed

    @classmethod
    def of(cls, accepted: Credentials, clock: Clock) -> Auths:
        """Return the checks of these credentials; one for both where they are the same."""
        readers = PageAuth(accepted.readers, clock) if accepted.readers else None
        if accepted.changers == accepted.readers:
            return cls(readers, readers)
        return cls(readers, PageAuth(accepted.changers, clock))

    def refusal(self, headers: Sequence[str], address: str, *, is_change: bool) -> Page | None:
        """Return the answer to a request with these Authorization headers; None to allow it."""
        auth = self.of_changers if is_change else self.of_readers
        if auth is None:
            return _UNCHANGEABLE if is_change else None
        return auth.refusal(headers, address)


def _parsed(header: str) -> tuple[str, bytes]:
    """Return the scheme, in lower case, and the credential."""
    scheme, _, rest = header.strip()[:_CREDENTIAL_MAX].partition(" ")
    return scheme.lower(), rest.strip().encode("utf-8", "surrogateescape")


def _network(address: str) -> str:
    """Rule 3."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(ip) >> _PREFIX_BITS << _PREFIX_BITS, _PREFIX_BITS)))
    return address
