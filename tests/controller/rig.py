"""A controller without threads, sockets or disk, driven step by step, with fake brokers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from barnabas.broker.metadata.features import SUPPORTED_FEATURES
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.config.config import Config
from barnabas.controller.broker_registry import HeartbeatReply
from barnabas.controller.controller_metrics import ControllerMetrics
from barnabas.controller.decision import Decision, View
from barnabas.controller.decisions.topics import create_topics
from barnabas.controller.image import Endpoint, Partition
from barnabas.controller.metadata.bootstrap import bootstrap_records
from barnabas.controller.metadata.local_client import LocalClient
from barnabas.controller.metadata.metadata_log import MetadataLog
from barnabas.controller.policies.policies import Policies
from barnabas.controller.quorum_controller import QuorumController, ReplicatedLog
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ApiError
from barnabas.protocol.messages import k19_create_topics as create_wire
from barnabas.protocol.messages import k62_broker_registration as registration_wire
from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrResponse
from barnabas.protocol.messages.k05_stop_replica import StopReplicaResponse
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataResponse
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from tests.support.configs import parsed

CLUSTER_ID = "h3zYrOmsQJqmHD2y0yjFEg"
DIRECTORY = "/meta"

PROPERTIES = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:0",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": DIRECTORY,
}

RESPONSES: dict[int, Callable[[], Any]] = {
    4: LeaderAndIsrResponse,
    5: StopReplicaResponse,
    6: UpdateMetadataResponse,
}


def make_config(**overrides: str) -> Config:
    """A controller's config; keys with underscores for dots."""
    return parsed({**PROPERTIES, **{name.replace("_", "."): value for name, value in overrides.items()}}, "controller")


class FakeBroker:
    """The far end of a sender's connection."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.is_down = False
        self.error_code = 0

    def send(self, message: Any, version: int) -> Any:
        """Note a request and respond."""
        if self.is_down:
            raise ConnectionRefusedError("unreachable")
        self.received.append(message)
        response = RESPONSES[message.API_KEY]()
        response.error_code = self.error_code
        return response

    def take(self) -> list[Any]:
        """Return the requests since the last call."""
        received, self.received = self.received, []
        return received

    def abort(self) -> None:
        """A connection's abort."""

    def close(self) -> None:
        """A connection's close."""


class Rig:
    """A controller and its cluster."""

    def __init__(
        self,
        fs: FileSystem | None = None,
        clock: FakeClock | None = None,
        seed: int = 1,
        directory: str = DIRECTORY,
        raft: ReplicatedLog | None = None,
        **overrides: str,
    ) -> None:
        """With `raft` it is one controller of several (tests/controller/fake_quorum.py), which may be standby."""
        self.clock = clock or FakeClock()
        self.fs = fs or MemoryFileSystem()
        self.config = make_config(**overrides)
        self._overrides = overrides
        self.brokers: dict[int, FakeBroker] = {}
        self.registry = Registry(self.clock)
        self.metrics = ControllerMetrics(self.registry, self.clock)
        flush: Callable[[], object] = int
        if raft is None:
            self.log = MetadataLog(directory, self.config, self.clock, self.fs)
            raft = local = LocalClient(100, self.log)
            flush = local.flush
        self.controller = QuorumController(
            config=self.config,
            cluster_id=CLUSTER_ID,
            raft=raft,
            flush=flush,
            bootstrap=lambda: bootstrap_records(self.fs, directory, self.config),
            clock=self.clock,
            connect=self._connect,
            metrics=self.metrics,
            rng=random.Random(seed),
            policies=Policies.of(self.config),
            start_threads=False,
            checks_invariants=True,
            max_idle_ms=0 if flush is not int else int(self.config.metadata_max_idle_interval_ms),
        )
        self.controller.start()

    def _connect(self, endpoint: Endpoint) -> FakeBroker:
        return self.brokers.setdefault(endpoint.port - 9000, FakeBroker())

    @property
    def image(self) -> Any:
        """The committed image."""
        return self.controller.committed_image

    def decide(self, decide: Callable[[View], Decision[Any]]) -> Any:
        """Decide and commit; raises the ApiError of the decision."""
        results: list[Any] = []
        self.controller.submit("test", decide, results.append, results.append)
        self.controller.loop.step()
        assert len(results) == 1
        if isinstance(results[0], ApiError):
            raise results[0]
        return results[0]

    def push(self) -> None:
        """Make every sender send its pending changes."""
        assert self.controller.channels is not None
        for channel in self.controller.channels.channels.values():
            if channel.queue_size() or channel._pending:
                channel.push_once()

    def register(self, broker_id: int, incarnation: int | None = None, rack: str | None = None) -> int:
        """Register a broker; returns its epoch."""
        request = registration(broker_id, incarnation, rack)
        epoch: int = self.decide(lambda view: self.controller.register(view, request))
        return epoch

    def heartbeat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        epoch: int | None = None,
    ) -> HeartbeatReply:
        """Send a heartbeat, by default of a broker that has applied everything."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch if epoch is None else epoch,
            current_metadata_offset=self.image.offset if offset is None else offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        reply: HeartbeatReply = self.decide(lambda view: self.controller.heartbeat(view, request))
        return reply

    def join(self, *broker_ids: int, racks: dict[int, str] | None = None) -> None:
        """Register brokers and unfence them."""
        for broker_id in broker_ids:
            self.register(broker_id, rack=(racks or {}).get(broker_id))
            self.heartbeat(broker_id)

    def create(self, name: str, assignment: list[list[int]], **configs: str) -> bytes:
        """Create a topic on these replicas; returns its id."""
        request = create_wire.CreateTopicsRequest(topics=[manual_topic(name, assignment, **configs)])
        response = self.decide(lambda view: create_topics(view, request))
        (result,) = response.topics
        assert result.error_code == 0, result
        topic_id: bytes = result.topic_id
        return topic_id

    def partition(self, name: str, index: int = 0) -> Partition:
        """The committed state of a partition."""
        topic = self.image.topic(name)
        partition: Partition = topic.partitions[index]
        return partition

    def tick(self, ms: int) -> None:
        """Advance the clock and run the due timers."""
        self.clock.advance_ms(ms)
        for _ in range(10):
            self.controller.loop.step()

    def restart(self) -> Rig:
        """Return another controller on the same disk, as after kill -9."""
        return Rig(self.fs, self.clock, **self._overrides)


def registration(
    broker_id: int, incarnation: int | None = None, rack: str | None = None, **fields: Any
) -> registration_wire.BrokerRegistrationRequest:
    """A registration request; the incarnation defaults to a fixed one of the broker."""
    values: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": (broker_id * 1000 + (incarnation or 0) + 1).to_bytes(16, "big"),
        "listeners": [
            registration_wire.Listener(name="PLAINTEXT", host="127.0.0.1", port=9000 + broker_id, security_protocol=0)
        ],
        "features": [
            registration_wire.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "rack": rack,
        "log_dirs": [(1 << 64 | broker_id).to_bytes(16, "big")],
    }
    return registration_wire.BrokerRegistrationRequest(**{**values, **fields})


def manual_topic(name: str, assignment: list[list[int]], **configs: str) -> Any:
    """A topic of a CreateTopics request with replicas given."""
    return create_wire.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            create_wire.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(assignment)
        ],
        configs=[
            create_wire.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def topic(name: str, partitions: int = 1, factor: int = 1) -> Any:
    """A topic of a CreateTopics request to be placed."""
    return create_wire.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor)
