"""The gauges of quotas: how many connections wait, the exempt thread time, and the clients of a controller.

`broker_metrics.ClientMetrics` has the rates of a broker's clients.

Threads: the scraper's.
Source: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.quotas.limits import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from barnabas.broker.quotas.sensors import sanitized
from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from barnabas.broker.network.connection import Connection
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.quotas.mutations import MutationQuotas
    from barnabas.metrics.registry import Labels, Registry

#: Returns the connections that wait now.
Throttled = Callable[[], "Sequence[Connection]"]

QUEUES: Final = (
    (c.PRODUCE_QUEUE_SIZE, PRODUCER_BYTE_RATE),
    (c.FETCH_QUEUE_SIZE, CONSUMER_BYTE_RATE),
    (c.REQUEST_QUOTA_QUEUE_SIZE, REQUEST_PERCENTAGE),
    (c.MUTATION_QUEUE_SIZE, CONTROLLER_MUTATION_RATE),
)


def register_queues(registry: Registry, throttled: Throttled) -> None:
    """Register how many connections wait, by kind of quota. A wait of the controller's counts as one for requests."""

    def count(quota: str) -> int:
        quotas = [REQUEST_PERCENTAGE if c.throttle is None else c.throttle.quota for c in throttled()]
        return quotas.count(quota)

    for row, quota in QUEUES:
        registry.gauge(row, partial(count, quota))


def register_exempt(registry: Registry, quotas: ClientQuotas) -> None:
    """Register the thread time of requests that no quota is for; of a broker."""
    registry.gauge(c.EXEMPT_REQUEST_TIME, lambda: 0.0 if quotas.request is None else quotas.request.exempt_time())


def register_mutations(registry: Registry, quotas: MutationQuotas) -> None:
    """Register the quotas of changes of topics, by user and client id; of a controller."""

    def read() -> Iterator[tuple[Labels, tuple[float, ...]]]:
        manager = quotas.manager
        for share, numbers, throttle_ms in () if manager is None else manager.numbers():
            yield (sanitized(share.user), share.client_id), (*numbers, throttle_ms)

    registry.table((c.MUTATION_TOKENS, c.MUTATION_RATE, c.MUTATION_THROTTLE_TIME), read)
