"""Threads and connections that follow the config while the broker runs.

A changed count of threads is taken over by its pool, a changed limit by the quotas. Kafka allows a pool no more than
double, and no less than half, of what it has: a slip of the pen must not be the end of a broker.

Threads: `check` by handlers that are asked to change a config; `update` by the handler of a push, which leaves the work
to the scheduler, for a pool that shrinks may be waited for, the handlers' own included.
Source: Kafka's DynamicThreadPool, BrokerDynamicThreadPool, DynamicListenerConfig, SocketServer.reconfigure (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.broker.dynamic_config import ResourceType
from barnabas.config.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.broker.dynamic_config import DynamicConfig, Resource
    from barnabas.broker.storage.scheduler import TaskScheduler

log = logging.getLogger("barnabas.config")

#: Every key that is a count of threads of which the change is bounded.
THREAD_COUNTS: Final = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)

Resize = Callable[[int], object]


class Reconfigurable(Protocol):
    """The part of the socket server that is needed here."""

    def reconfigure(self, dynamic: Mapping[str, str]) -> None:
        """Follow changed limits of connections and counts of processors; `dynamic` holds what is set at run time."""


class DynamicResources:
    """What has to be told of changes; the rest reads the config when it needs it."""

    def __init__(
        self, dynamic: DynamicConfig, scheduler: TaskScheduler, pools: Mapping[str, Resize], sockets: Reconfigurable
    ) -> None:
        self._dynamic = dynamic  # fixed before start
        self._config = dynamic.config  # fixed before start; its values change
        self._scheduler = scheduler  # fixed before start
        self._pools = pools  # fixed before start; by key
        self._sockets = sockets  # fixed before start
        self._counts = {name: self._count(name) for name in pools}  # owner: the scheduler's task, one at a time
        dynamic.before_change(self.check)
        dynamic.on_change(self.update)

    def check(self, changed: Any) -> None:
        """Raise ConfigError for counts of threads that are too far from those of now."""
        for name in THREAD_COUNTS:
            new, old = int(changed.value(name)), self._count(name)
            prefix = f"Dynamic thread count update validation failed for {name}={new}"
            if new < old // 2:
                raise ConfigError(f"{prefix}, value should be at least half the current value {old}")
            if new > old * 2:
                raise ConfigError(f"{prefix}, value should not be greater than double the current value {old}")

    def update(self, resource: Resource) -> None:
        """Follow a change of this broker's config."""
        if resource.type == ResourceType.BROKER:
            self._scheduler.schedule_once("reconfigure", self._apply)

    def _apply(self) -> None:
        for name, resize in self._pools.items():
            count = self._count(name)
            if count != self._counts[name]:
                log.info("%s changes from %d to %d", name, self._counts[name], count)
                self._counts[name] = count
                resize(count)
        self._sockets.reconfigure({**self._dynamic.cluster_overrides(), **self._dynamic.broker_overrides()})

    def _count(self, name: str) -> int:
        return int(self._config.value(name))
