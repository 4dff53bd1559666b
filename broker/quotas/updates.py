"""QuotaUpdates: brings changed quotas from the security metadata to what enforces them.

Names of hosts are resolved on a thread of the scheduler: a push must not wait for a name server. Addresses take effect
at once. An answer for limits that were replaced meanwhile is dropped.

Threads: the one that applies a push, and the scheduler's.
Source: ClientQuotaMetadataManager (Kafka 4.3).
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.quotas.limits import address_limits
from barnabas.security.image import Kind

if TYPE_CHECKING:
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.security.image import SecurityImage

log = logging.getLogger("barnabas.quotas")

#: Connections a second by address; None is the limit of all others.
AddressLimits = Mapping["str | None", float]


class QuotaUpdates:
    """See the module."""

    def __init__(
        self, clients: ClientQuotas, set_address_rates: Callable[[AddressLimits], None], scheduler: TaskScheduler
    ) -> None:
        self._clients = clients  # fixed before start
        self._set_address_rates = set_address_rates  # fixed before start
        self._scheduler = scheduler  # fixed before start
        self._lock = threading.Lock()  # before that of the connection quotas
        self._newest: AddressLimits = {}  # guarded by: _lock; by address or host name

    def security_changed(self, image: SecurityImage, changed: frozenset[Kind]) -> None:
        """Take changed quotas; a listener of SecurityCache."""
        if Kind.QUOTAS not in changed:
            return
        self._clients.update(image.quotas)
        limits = address_limits(image.quotas)
        with self._lock:
            self._newest = limits
        known: dict[str | None, float] = {}
        names = []
        for host, limit in limits.items():
            address = host if host is None else plain_address(host)
            if host is not None and address is None:
                names.append(host)
            else:
                known[address] = limit
        self._set(limits, known)
        if names:
            self._scheduler.schedule_once("resolve-quotas", partial(self._resolve, limits, known, names))

    def _resolve(self, limits: AddressLimits, known: AddressLimits, names: Iterable[str]) -> None:
        resolved: dict[str | None, float] = {}
        for name in names:
            try:
                found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except OSError as error:
                log.error("the connection quota of host %s has no effect: %s", name, error)
                continue
            resolved.update((plain_address(str(address[0])), limits[name]) for *_, address in found)
        self._set(limits, {**resolved, **known})

    def _set(self, limits: AddressLimits, by_address: AddressLimits) -> None:
        with self._lock:
            if limits is self._newest:
                self._set_address_rates(by_address)


def plain_address(text: str) -> str | None:
    """Return an IP address as the addresses of clients are written; None if the text is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(address if mapped is None else mapped)
