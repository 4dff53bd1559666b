"""Replicas with their own threads, sockets and files, in this process, and a listener that is a name to number map."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from barnabas.broker.handlers import HandlerPool
from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.requests.request_log import RequestLog
from barnabas.broker.socket_server import SocketServer
from barnabas.broker.storage.directories.checkpoints import read_meta_properties, write_meta_properties
from barnabas.client.connection import NodeConnection
from barnabas.cluster import free_ports
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.ids import random_uuid, uuid_from_string, uuid_to_string
from barnabas.config.config import Config
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.apis.table import TABLE
from barnabas.controller.image import Image
from barnabas.controller.main import controller_listeners
from barnabas.controller.metadata.metadata_directory import META_PROPERTIES_FILE, MetadataDirectory
from barnabas.controller.raft.client.driver import RaftDriver
from barnabas.controller.raft.client.interface import LeaderAndEpoch
from barnabas.controller.raft.client.raft_log import RaftLog
from barnabas.controller.raft.client.senders import Senders
from barnabas.controller.raft.client.settings import raft_config
from barnabas.controller.raft.log_outline import Membership
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol.errors import ApiError
from tests.controller.raft.client.rig import Listened, batch_of
from tests.controller.rig import CLUSTER_ID, make_config
from tests.support.waiting import START_TIMEOUT_MS, eventually

HOST = "127.0.0.1"
WAIT_MS = START_TIMEOUT_MS  # some wait until a controller of Apache Kafka has started


class RaftServer:
    """One replica that is reached by its controller listener."""

    def __init__(
        self, node_id: int, ports: dict[int, int], directory: Path, voters: Membership, **settings: str
    ) -> None:
        self.port = port = ports[node_id]
        self.id = node_id
        self.listened = Listened()
        config = make_config(
            node_id=str(node_id), listeners=f"CONTROLLER://{HOST}:{port}", log_dirs=str(directory), **settings
        )
        clock, fs = SystemClock(), OsFileSystem()
        self._directory = MetadataDirectory.open(fs, str(directory), node_id, CLUSTER_ID)
        properties = read_meta_properties(fs, f"{directory}/{META_PROPERTIES_FILE}")
        assert properties is not None
        self.key = key = ReplicaKey(node_id, uuid_from_string(properties["directory.id"]))
        listeners = (Listener("CONTROLLER", HOST, port),)
        log = RaftLog(str(directory), config, clock, fs, voters)
        senders = Senders(node_id, lambda host, to: NodeConnection(host, to, timeout_ms=2_000, client_id=str(node_id)))
        servers = tuple((HOST, other) for other in ports.values() if other != port)
        quorum = raft_config(config, CLUSTER_ID, listeners)._replace(bootstrap_servers=servers)
        self.raft = RaftDriver(quorum, key, log, senders, clock)
        self.raft.register(self.listened)
        self._serve(config, clock)

    def _serve(self, config: Config, clock: Clock) -> None:
        registry = Registry(clock)
        channel = RequestChannel(100)
        request_log = RequestLog(RequestMetrics(registry), registry, 0, table=TABLE)
        self._sockets = SocketServer(
            controller_listeners(config), config, channel, request_log, registry, clock, thread_prefix="controller"
        )
        services = ControllerServices(
            config=config,
            cluster_id=CLUSTER_ID,
            clock=clock,
            registry=registry,
            controller=SimpleNamespace(
                committed_image=Image(),
                pushed_offset=-1,
                node_id=self.id,
                leader=LeaderAndEpoch(self.id, 0),
                epoch=0,
                active_since_ms=None,
            ),
            endpoint=(self.id, HOST, self.port),
            table=TABLE,
            mutations=None,
            raft=self.raft,
        )
        self._handlers = HandlerPool(
            1, channel, TABLE, services, request_log, registry, clock, thread_prefix="controller"
        )

    def start(self) -> None:
        self._handlers.start()
        self._sockets.start()
        self.raft.start()

    def stop(self) -> None:
        self._sockets.begin_shutdown()
        self._handlers.shutdown()
        self.raft.shutdown(WAIT_MS)
        self._sockets.shutdown()
        self._directory.close()

    @property
    def leads(self) -> bool:
        """Whether it leads, and its listener knows."""
        leader = self.raft.leader_and_epoch
        return leader.leader_id == self.id and self.listened.leaders[-1:] == [leader]


class RaftServers:
    """A quorum of servers, with directory ids under kraft.version 1; `observers` more do not vote."""

    def __init__(self, root: Path, count: int = 3, kraft_version: int = 0, observers: int = 0) -> None:
        self._root = root
        self.ports = dict(zip(itertools.count(1), free_ports(count + observers), strict=False))
        nodes = (
            VoterNode(
                self._format(node_id) if kraft_version else ReplicaKey(node_id),
                (Listener("CONTROLLER", HOST, port),),
                (0, kraft_version),
            )
            for node_id, port in list(self.ports.items())[:count]
        )
        self.voters = Membership(-1, kraft_version, VoterSet(nodes))
        self.running: dict[int, RaftServer] = {}

    def _format(self, node_id: int) -> ReplicaKey:
        """Give a directory an id before the start."""
        key = ReplicaKey(node_id, random_uuid())
        directory = self._root / str(node_id)
        directory.mkdir()
        write_meta_properties(
            OsFileSystem(),
            f"{directory}/{META_PROPERTIES_FILE}",
            cluster_id=CLUSTER_ID,
            node_id=node_id,
            directory_id=uuid_to_string(key.directory_id),
        )
        return key

    def start(self, node_id: int, **settings: str) -> None:
        timeouts = {
            "controller_quorum_election_timeout_ms": "300",
            "controller_quorum_fetch_timeout_ms": "600",
        }
        server = RaftServer(node_id, self.ports, self._root / str(node_id), self.voters, **{**timeouts, **settings})
        server.start()
        self.running[node_id] = server

    def stop(self, node_id: int) -> None:
        self.running.pop(node_id).stop()

    def leader(self) -> RaftServer:
        """Wait for a leader that knows it."""
        eventually("a leader", lambda: any(server.leads for server in self.running.values()), WAIT_MS)
        return next(server for server in self.running.values() if server.leads)

    def append(self, name: str) -> None:
        """Append a record and wait until every replica has it, whatever happens to leaders."""
        while not self._try_append(name):
            pass

    def _try_append(self, name: str) -> bool:
        leader = self.leader()
        try:
            leader.raft.append(leader.raft.leader_and_epoch.epoch, batch_of(name))
        except ApiError:
            return False
        eventually("a commit", lambda: not leader.leads or name in leader.listened.names, WAIT_MS)
        return name in leader.listened.names


@contextmanager
def raft_servers(root: Path, count: int = 3, kraft_version: int = 0, observers: int = 0) -> Iterator[RaftServers]:
    """Start a quorum; stop it at the end."""
    servers = RaftServers(root, count, kraft_version, observers)
    try:
        for node_id in servers.ports:
            servers.start(node_id)
        yield servers
    finally:
        for node_id in list(servers.running):
            servers.stop(node_id)
