"""Who may ask a page: not a foreign site in somebody's browser.

A browser asks where the page that it shows tells it to. Two ways lead to a server that only its owner should reach:

- a foreign page sends a request; the browser says so in `Origin`;
- DNS rebinding: a name that the attacker owns, `evil.example`, is made to stand for 127.0.0.1. For the browser all is
  one site, and the foreign page can read the answers. Only `Host` tells.

Rules
1. A request with an `Origin` other than the page's own is refused. What can be changed refuses any.
2. `Host` must be an address, since rebinding needs a name; or `localhost`; or a name that the process knows to be its
   own: the machine's, those that it listens on or advertises, its live peers', `barnabas.metrics.hosts`.
3. What can only be read allows a name that no stranger can own in the public DNS, too: one without a dot (a service of
   Docker or Kubernetes, as Prometheus asks it) and one below a reserved domain (`.local`, `.internal`, `.test`). Who
   controls the DNS of the visitor's network can still forge these, so rule 2 holds for what can be changed.
4. No `Host` at all is no browser: probes of HTTP/1.0 send none.

Threads: none; pure.
Source: Fetch (Origin header), RFC 9112 section 3.2 (Host), RFC 6761 and ICANN's reservation of .internal.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

_RESERVED: Final = (".local", ".internal", ".test", ".home.arpa")
ANY: Final = "*"


def host_of(text: str) -> str:
    """The name or address of HOST[:PORT], in small letters, without brackets and the root's dot."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".") if text.count(":") == 1 else text.removesuffix(".")


def is_address(host: str) -> bool:
    """Whether this is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class PageGuard:
    """What one page allows; `names` are its own (rule 2), `*` allows every name."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(host_of(name) for name in names if name)

    def refusal(self, hosts: list[str], origins: list[str], *, can_change: bool) -> str | None:
        """Why a request with these headers is refused, in one line; None if it is not."""
        if len(hosts) > 1:
            return "more than one Host"
        for origin in origins:
            if can_change or origin.lower() not in [f"http://{host.strip().lower()}" for host in hosts]:
                return "a page of another site may not ask this"
        for host in map(host_of, hosts):
            if not (self._is_own(host) or (not can_change and _is_private(host))):
                return f"this page is not known as {host!r}; barnabas.metrics.hosts names further hosts"
        return None

    def _is_own(self, host: str) -> bool:
        if is_address(host) or host == "localhost" or host.endswith(".localhost"):
            return True
        return host in self._names or ANY in self._names


def _is_private(host: str) -> bool:
    """Rule 3."""
    return ("." not in host and host != "") or host.endswith(_RESERVED)
