"""ControllerQuotas: the quotas of a controller, for clients that connect to its own listeners (KIP-919).

| quota | on the controller |
|---|---|
| `controller_mutation_rate` | of forwarded requests too, in `controller.quota.window.*` |
| `request_percentage` | of requests that come directly; a broker measures those that it forwards |
| `connection_creation_rate` | of addresses that connect directly |

Requests that only nodes send are exempt, as on brokers.

Threads: the event thread gives the limits of each new image; a scheduler's thread looks up the names of hosts and drops
the rates of clients that are gone.
Source: ControllerServer, ClientQuotaMetadataManager (Kafka 4.3). Different: there, a forwarded request is charged the
thread time of the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.broker.monitoring.quota_metrics import register_exempt, register_mutations, register_queues
from barnabas.broker.quotas.callback import QuotaPlugin
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.mutations import MutationQuotas
from barnabas.broker.quotas.updates import AddressLimits, QuotaUpdates
from barnabas.broker.storage.scheduler import Scheduler
from barnabas.security.image import Kind

if TYPE_CHECKING:
    from barnabas.broker.monitoring.quota_metrics import Throttled
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.metrics.registry import Registry
    from barnabas.security.image import SecurityImage

EXPIRE_MS: Final = 60_000


class ControllerQuotas:
    """See the module."""

    def __init__(self, config: Config, clock: Clock, scheduler: TaskScheduler | None = None) -> None:
        # Fixed before start.
        plugin = QuotaPlugin.of(config, clock)
        self.clients = ClientQuotas.of(config, clock, plugin)
        self.mutations = MutationQuotas.of(config, clock, plugin)
        self._own = Scheduler(1, clock, "controller-scheduler")
        self._scheduler = scheduler or self._own
        self._updates: QuotaUpdates | None = None  # fixed by `limit_addresses`, before start
        self._image: SecurityImage | None = None  # owner: event thread

    def limit_addresses(self, set_address_rates: Callable[[AddressLimits], None]) -> None:
        """Pass the limits of addresses on from now; to be called before the start."""
        self._updates = QuotaUpdates(self.clients, set_address_rates, self._scheduler)

    def register(self, registry: Registry, throttled: Throttled) -> None:
        """Show the metrics of the quotas."""
        register_queues(registry, throttled)
        register_exempt(registry, self.clients)
        register_mutations(registry, self.mutations)

    def start(self) -> None:
        """Begin to drop what clients that are gone have left."""
        self._scheduler.schedule("client-quotas", self._expire, EXPIRE_MS, EXPIRE_MS)

    def take(self, image: SecurityImage) -> None:
        """Enforce the limits of a new image; called by the event thread."""
        before, self._image = self._image, image
        if self._updates is None or (before is not None and before.quotas is image.quotas):
            return
        self._updates.security_changed(image, frozenset({Kind.QUOTAS}))

    def stop(self) -> None:
        """End the thread, and the operator's own class."""
        self._own.shutdown()
        self.clients.close()

    def _expire(self) -> None:
        self.clients.expire()
        self.mutations.expire()
