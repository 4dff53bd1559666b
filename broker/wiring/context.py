"""Context: the values and components that all parts of a broker share.

Threads: none; everything is fixed before start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.broker.storage.scheduler import Scheduler
    from barnabas.client.connection import Connect
    from barnabas.common.clock import Clock
    from barnabas.common.disk.files import FileSystem
    from barnabas.config.config import Config
    from barnabas.metrics.http import MetricsServer
    from barnabas.metrics.registry import Registry
    from barnabas.security.tls.loaded import ExpiryLog


class SharedProcess(NamedTuple):
    """What the broker shares with the controller of the same process."""

    registry: Registry  # of the broker alone; the process shows both on one page
    page: MetricsServer  # started and stopped by the process
    expiry: ExpiryLog
    has_leader: Callable[[], bool]  # whether the controller knows an active one; called after build_controller
    build_controller: Callable[[str | None], str]  # given the cluster id if it is known; returns it


class StartError(Exception):
    """The broker cannot start; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Context:
    """See the module."""

    broker_id: int
    cluster_id: str
    controllers: Sequence[tuple[str, int]]  # (host, port) of each controller
    config: Config
    clock: Clock
    moved_clock: Clock  # of data, groups, transactions and tokens; `clock`, unless it can be moved on purpose
    fs: FileSystem
    registry: Registry
    scheduler: Scheduler
    connect: Connect  # opens connections to other brokers
    connect_to_controller: Connect
    page: MetricsServer | None  # of the whole process, which starts and stops it; None: the broker has its own
    on_fatal: Callable[[str], None]  # called from any thread with the reason why the process must end
