"""The parts of a process with fault injection: `main` uses them in place of the plain ones, with
barnabas.faults.enable.

clock, files, connections   the parts that faults can disturb
engine                      the faults, and the API table that goes through them
pages                       /faults and /recorder
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.broker.faults.disk import FaultableFileSystem
from barnabas.broker.faults.engine import FaultEngine
from barnabas.broker.faults.links import Links
from barnabas.broker.faults.pages import add_pages
from barnabas.broker.faults.recorder import Recorder
from barnabas.broker.faults.skewed_clock import SkewedClock
from barnabas.broker.storage.scheduler import Scheduler
from barnabas.common.disk.files import OsFileSystem
from barnabas.config.errors import ConfigError
from barnabas.faults.definition import CONTROLLER

if TYPE_CHECKING:
    from barnabas.broker.faults.actions.call import TopicName
    from barnabas.broker.metadata.metadata_cache import BrokerInfo, MetadataCache
    from barnabas.broker.requests.api import Api, Table
    from barnabas.client.connection import NodeConnection
    from barnabas.common.disk.files import FileSystem
    from barnabas.config.config import Config
    from barnabas.metrics.http import MetricsServer

THREADS_MAX = 8
Address = tuple[str, int]


def broker_ids_at(brokers: Iterable[BrokerInfo], host: str, port: int) -> set[int]:
    """Return the ids of the brokers that have a listener at an address."""
    return {broker.id for broker in brokers if any((e.host, e.port) == (host, port) for e in broker.endpoints.values())}


class FaultKit:
    """See the module. Built before all other parts of the process. Raises ConfigError."""

    def __init__(self, config: Config, fs: FileSystem | None = None) -> None:
        if config.barnabas_metrics_port < 0:
            raise ConfigError("barnabas.faults.enable needs barnabas.metrics.port: faults are added there")
        self.clock = SkewedClock()
        self.fs = FaultableFileSystem(OsFileSystem() if fs is None else fs)
        self.links = Links()
        self._scheduler = Scheduler(THREADS_MAX, self.clock, "fault")
        node_id = int(config.node_id)
        recorder = Recorder(node_id, self.clock)
        if config.barnabas_faults_recorder_capacity:
            recorder.start(config.barnabas_faults_recorder_capacity)
        self.engine = FaultEngine(
            node_id, self.clock, self._scheduler, recorder, disk=self.fs, links=self.links, wall=self.clock
        )

    def wrap(self, table: Table) -> dict[int, Api]:
        """Return an API table that goes through the faults."""
        return self.engine.wrap(table)

    def connect(self, host: str, port: int, **about: Any) -> NodeConnection:
        """Return a connection to a node that fails when a fault cuts the link."""
        return self.links.connect(host, port, **about)

    def serve_broker(self, page: MetricsServer, cache: MetadataCache, controllers: Collection[Address]) -> None:
        """Add the pages of a broker before they are served, and look names up in its metadata cache."""
        self.engine.topic_name = lambda topic_id: cache.snapshot.topic_name(topic_id)
        self.links.controller_id = lambda: cache.snapshot.controller_id

        def names_at(host: str, port: int) -> Collection[int | str]:
            if (host, port) in controllers:
                return CONTROLLER, cache.snapshot.controller_id
            return broker_ids_at(cache.snapshot.brokers.values(), host, port)

        self.links.names_at = names_at
        add_pages(page, self.engine, "broker")

    def name_controllers(self, cache: MetadataCache, voters: Mapping[int, Address]) -> None:
        """Let links to each of several controllers be cut alone, after `serve_broker`: for a node with both roles."""

        def names_at(host: str, port: int) -> Collection[int | str]:
            ids = {voter_id for voter_id, address in voters.items() if address == (host, port)}
            names: set[int | str] = {*ids, *broker_ids_at(cache.snapshot.brokers.values(), host, port)}
            return names | {CONTROLLER} if cache.snapshot.controller_id in ids else names

        if voters:
            self.links.names_at = names_at

    def serve_controller(self, page: MetricsServer, topic_name: TopicName, brokers: Callable[[], Any]) -> None:
        """Add the pages of a controller, likewise. `brokers()` returns the registered brokers."""
        self.engine.topic_name = topic_name
        self.links.names_at = lambda host, port: {
            broker.id for broker in brokers() if any((e.host, e.port) == (host, port) for e in broker.endpoints)
        }
        add_pages(page, self.engine, "controller")

    def close(self) -> None:
        """Remove all faults, which releases everything that they hold. Called when the process stops."""
        self.engine.remove_all()
        self._scheduler.shutdown()
