"""The guard of the HTTP pages: it refuses requests that a foreign site makes in a user's browser.

A foreign page in a browser has two ways to reach a server that it should not reach:

- it sends a request, and the browser adds an `Origin` header;
- DNS rebinding: the attacker's own name, `evil.example`, resolves to 127.0.0.1. To the browser this is the same site,
  so the foreign page can read the answers. Only the `Host` header shows the attack.

Rules
1. A request with an `Origin` other than the page's own is refused. Resources that can be changed refuse every `Origin`.
2. `Host` must be an address, since rebinding needs a name; or `localhost`; or a known name of the process: the
   machine's, those that it listens on or advertises, those of its live peers, `barnabas.metrics.hosts`.
3. Pages that can only be read also allow names that no attacker can own in the public DNS: names without a dot
   (services of Docker or Kubernetes, which Prometheus uses) and names below a reserved domain (`.local`, `.internal`,
   `.test`). An attacker in control of the visitor's DNS can forge these, so resources that can be changed follow rule
   2.
4. A request without `Host` is allowed: it is not a browser's, but a probe's over HTTP/1.0.

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
    """Return the name or address of HOST[:PORT], in lower case, without brackets and the final dot."""
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".") if text.count(":") == 1 else text.removesuffix(".")


def is_address(host: str) -> bool:
    """Return whether this is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class PageGuard:
    """The guard of one process. `names` are its own names (rule 2); `*` allows every name."""

    def __init__(self, names: Iterable[str] = (), scheme: str = "http") -> None:
        self._scheme = scheme  # fixed before start
        self._names = frozenset(host_of(name) for name in names if name)

    def refusal(self, hosts: list[str], origins: list[str], *, can_change: bool) -> str | None:
        """Return the reason to refuse a request with these headers, in one line; None to allow it."""
        if len(hosts) > 1:
            return "more than one Host"
        for origin in origins:
            if can_change or origin.lower() not in [f"{self._scheme}://{host.strip().lower()}" for host in hosts]:
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
