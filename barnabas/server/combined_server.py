"""CombinedServer: a broker and a controller in one process (`process.roles=broker,controller`).

They are the broker and the controller of separate processes, and talk to each other through the controller's listener,
as separate ones do. They share the node id, the directories with their locks and `meta.properties`, the page with
/metrics and /live, the clock that may be moved, and the faults.

Start: the broker locks the log directories and binds its listeners -> the controller opens the metadata log and binds
its own -> the controller starts -> the broker starts, and registers with the active controller, this one or another.
Stop: the broker first, since its controlled shutdown needs a controller; then the controller. An error that ends one of
them ends the process.

Threads: main.
Source: Kafka's KafkaRaftServer and SharedServer (4.3).
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

from barnabas.broker.apis.table import TABLE
from barnabas.broker.broker_server import BrokerServer
from barnabas.broker.wiring.context import SharedProcess as BrokerShare
from barnabas.config.config import CONTROLLER
from barnabas.controller.controller_metrics import leader_id
from barnabas.controller.main import ControllerServer
from barnabas.controller.main import SharedProcess as ControllerShare
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.metrics import process
from barnabas.metrics.http import MetricsServer
from barnabas.metrics.page.combined import CombinedRegistry
from barnabas.metrics.registry import Registry
from barnabas.security.tls.loaded import ExpiryLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.clock.hand import ClockHand
    from barnabas.broker.faults.kit import FaultKit
    from barnabas.common.clock import Clock
    from barnabas.common.disk.files import FileSystem
    from barnabas.common.pages.page import Page
    from barnabas.config.config import Config


class CombinedServer:
    """Both parts, built but not started. Raises what the constructors of both raise."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        fs: FileSystem,
        cluster_id: str | None = None,
        faults: FaultKit | None = None,
        hand: ClockHand | None = None,
    ) -> None:
        """`config` is that of the broker; `cluster_id` is for new directories."""
        self.config = config
        self.endings: queue.SimpleQueue[int | str] = queue.SimpleQueue()  # a signal, or the reason to end the process
        self._faults = faults  # fixed before start; if not None, `clock` and `fs` are its own
        self._hand = hand  # fixed before start
        built: list[ControllerServer] = []
        of_broker, of_controller, expiry = Registry(clock), Registry(clock), ExpiryLog()
        registry = CombinedRegistry(clock, of_broker, of_controller)
        self.page = MetricsServer.of_config(registry, config, clock)

        def build_controller(known: str | None) -> str:
            if known and cluster_id and known != cluster_id:
                raise DirectoryError(f"the log directories belong to cluster {known!r}, not {cluster_id!r}")
            share = ControllerShare(of_controller, self.page, expiry, self.endings, frozenset(TABLE))
            own = config.of_role(CONTROLLER)
            built.append(ControllerServer(own, clock, fs, known or cluster_id, faults, hand, share))
            return built[0].cluster_id

        try:
            of_process = BrokerShare(of_broker, self.page, expiry, self._has_leader, build_controller)
            self.broker = BrokerServer(config, clock, fs, self.endings.put, faults, hand, of_process)
        except BaseException:
            for controller in built:
                controller.stop()
            raise
        self.controller = built[0]
        process.register(registry, is_controller=True)
        # Why after both: each of them has added its own.
        self.page.add_view("/live.json", self._live)
        self.page.add_page("/readyz", self._readiness)
        if faults is not None:
            faults.name_controllers(self.broker.services.metadata_cache, config.controller_voters())

    def _has_leader(self) -> bool:
        return leader_id(self.controller.controller) >= 0

    def _live(self, query: Mapping[str, str]) -> Page:
        """Return the state of the broker, or with `role=controller` that of the controller."""
        query = dict(query)
        if query.pop("role", "") == CONTROLLER:
            return self.controller.view.page(query)
        return self.broker.pages.view.page(query)

    def _readiness(self) -> Page:
        """Return whether clients can use this process."""
        of_controller = self.controller.readiness()
        return self.broker.pages.readiness() if of_controller.status.startswith("200") else of_controller

    def start(self) -> None:
        """Start the controller, then the broker. Raises what they raise; `close` then stops what was started."""
        self.page.start()
        if self._hand is not None:
            self._hand.catch_up()
        self.controller.start()
        self.broker.start()

    def stop(self, *, controlled: bool = True) -> None:
        """Stop the broker, with `controlled` in a controlled shutdown, then the controller."""
        self.broker.stop(controlled=controlled)
        self.controller.stop()
        self.page.stop()
        if self._faults is not None:
            self._faults.close()

    def close(self) -> None:
        """Stop at once what was built."""
        self.stop(controlled=False)
