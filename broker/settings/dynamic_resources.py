"""DynamicResources: thread pools and connection limits that follow the config while the broker runs.

Pools follow thread counts, and the socket server follows limits. As in Kafka, a pool may at most double or halve. So a
typing error cannot break a broker.

Threads: handlers of AlterConfigs call `check`. The handler of a push calls `update`, which leaves the work to the
scheduler: a pool that shrinks waits for its threads, which may include that handler.
Source: Kafka's DynamicThreadPool, BrokerDynamicThreadPool, DynamicListenerConfig, SocketServer.reconfigure (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.config.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.broker.settings.dynamic_config import DynamicConfig, Resource
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.config")

#: Every key with a thread count whose changes are bounded.
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

    def reconfigure(self) -> None:
        """Apply changed connection limits and processor counts, which are in force already."""


class DynamicResources:
    """Notifies thread pools and the socket server of changes.

    `BrokerServer._reconfigure` notifies the other components that keep values. The rest read the config at each use.
    """

    def __init__(
        self, dynamic: DynamicConfig, scheduler: TaskScheduler, pools: Mapping[str, Resize], sockets: Reconfigurable
    ) -> None:
        self._config = dynamic.config  # fixed before start; its values change
        self._scheduler = scheduler  # fixed before start
        self._pools = pools  # fixed before start; by key
        self._sockets = sockets  # fixed before start
        self._counts = {name: self._count(name) for name in pools}  # owner: the scheduler's task, one at a time
        dynamic.before_change(self.check)
        dynamic.on_change(self.update)

    def check(self, changed: Config) -> None:
        """Raise ConfigError for thread counts below half, or above double, the present ones."""
        for name in THREAD_COUNTS:
            new, old = int(changed.value(name)), self._count(name)
            prefix = f"Dynamic thread count update validation failed for {name}={new}"
            if new < old // 2:
                raise ConfigError(f"{prefix}, value should be at least half the current value {old}")
            if new > old * 2:
                raise ConfigError(f"{prefix}, value should not be greater than double the current value {old}")

    def update(self, resource: Resource) -> None:
        """Apply a change of this broker's config soon, on the scheduler."""
        if resource.type == ResourceType.BROKER:
            self._scheduler.schedule_once("reconfigure", self._apply)

    def _apply(self) -> None:
        for name, resize in self._pools.items():
            count = self._count(name)
            if count != self._counts[name]:
                log.info("%s changes from %d to %d", name, self._counts[name], count)
                self._counts[name] = count
                resize(count)
        self._sockets.reconfigure()

    def _count(self, name: str) -> int:
        return int(self._config.value(name))
