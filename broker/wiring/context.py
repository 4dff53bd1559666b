"""Context: the values and components that all parts of a broker share.

Threads: none; everything is fixed before start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.storage.scheduler import Scheduler
    from barnabas.client.connection import Connect
    from barnabas.common.clock import Clock
    from barnabas.common.disk.files import FileSystem
    from barnabas.config.config import Config
    from barnabas.metrics.registry import Registry


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
    fs: FileSystem
    registry: Registry
    scheduler: Scheduler
    connect: Connect  # opens connections to other brokers
    connect_to_controller: Connect
    on_fatal: Callable[[str], None]  # called from any thread with the reason why the process must end
