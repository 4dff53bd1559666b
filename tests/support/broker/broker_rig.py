"""A broker without controller, sockets or threads: pushes are applied and requests answered step by step.

Files are in memory, time is fake; everything else is the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from barnabas.broker.apis.services import Services
from barnabas.broker.apis.table import TABLE
from barnabas.broker.channels.controller_nodes import ControllerNodes
from barnabas.broker.channels.forwarding import ForwardingManager
from barnabas.broker.channels.producer_ids import ProducerIds
from barnabas.broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas.broker.coordinators.share_state.sensors import ShareStateSensors
from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transactions.markers import MarkerWriter
from barnabas.broker.coordinators.transactions.shard import PendingCompletion
from barnabas.broker.coordinators.transactions.verification import TransactionVerification
from barnabas.broker.fetch_sessions.sessions import FetchSessions
from barnabas.broker.metadata.auto_topic_creation import AutoTopicCreation
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.metadata.push_gate import PushGate
from barnabas.broker.metadata.push_state import PushState
from barnabas.broker.metadata.security_cache import SecurityCache
from barnabas.broker.purgatory import Purgatories, Purgatory
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.replication.high_watermarks import HighWatermarks
from barnabas.broker.replication.leadership import Leadership
from barnabas.broker.replication.log_dir_moves import COPY_RATE, LogDirMoves
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.role import IsrProposal
from barnabas.broker.requests.answers import Close, NoReply, Reply
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.settings.dynamic_config import DynamicConfig, keep_logs_configured, keep_throttled
from barnabas.broker.share.manager import SharePartitionManager
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.broker.telemetry.manager import ClientMetricsManager
from barnabas.broker.telemetry.receiver import TelemetryReceiver
from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Registry
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import k00_produce as produce_wire
from barnabas.protocol.messages import k01_fetch as fetch_wire
from barnabas.protocol.messages import k04_leader_and_isr as leader_wire
from barnabas.protocol.messages import k05_stop_replica as stop_wire
from barnabas.protocol.messages import k06_update_metadata as metadata_wire
from barnabas.protocol.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from barnabas.protocol.push_tags import INCREMENTAL, Receiver, set_offset, set_receiver, set_records
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.protocol.schema import Message
from tests.support.broker.direct_persister import DirectPersister
from tests.support.broker.parked import Waiting
from tests.support.configs import parsed

BROKER_ID = 1
CLUSTER_ID = "h3zYrOmsQJqmHD2y0yjFEg"
BROKER_EPOCH = 10
LISTENER = "PLAINTEXT"
DATA = "/data"
INCARNATION = b"\x0a" * 16
PUSH_OFFSET = 20


def topic_id(name: str, incarnation: int = 0) -> bytes:
    """The id of a topic in tests; another `incarnation` is a recreated topic."""
    return name.encode().rjust(15, b".")[:15] + bytes([incarnation])


class FakeChannel:
    """A channel to the controller that keeps requests and their callbacks."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def send(self, message: Any, on_done: Any, **_: Any) -> None:
        self.sent.append((message, on_done))


class FakeFetchers:
    """Remembers the partitions that are followed."""

    def __init__(self) -> None:
        self.followed: set[TopicPartition] = set()

    def follow(self, partitions: Iterable[Partition], leaders: Mapping[int, tuple[str, int]]) -> None:
        self.followed.update(p.tp for p in partitions)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        self.followed.difference_update(tps)


class FakeIsrChanges:
    """Keeps ISR proposals and their callbacks."""

    def __init__(self) -> None:
        self.submitted: list[tuple[TopicPartition, IsrProposal, Any]] = []

    def submit(self, tp: TopicPartition, topic_id: bytes, proposal: IsrProposal, on_done: Any) -> None:
        self.submitted.append((tp, proposal, on_done))


class FakeAssignments:
    """Remembers the reported directory of each replica; the controller accepts at once, unless `is_slow`."""

    def __init__(self) -> None:
        self.told: dict[tuple[bytes, int], bytes] = {}
        self.is_slow = False
        self.waiting: list[Callable[[bool], object]] = []

    def assign(
        self, topic_id: bytes, partition: int, directory_id: bytes, on_done: Callable[[bool], object] | None = None
    ) -> None:
        self.told[topic_id, partition] = directory_id
        if on_done is not None and self.is_slow:
            self.waiting.append(on_done)
        elif on_done is not None:
            on_done(True)

    def report_again(self) -> None:
        """A new registration: the controller has no reports any more."""
        self.told.clear()

    def forget(self, topic_id: bytes, partition: int) -> None:
        self.told.pop((topic_id, partition), None)


class Listening:
    """A leadership listener that remembers its calls."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, TopicPartition, int | None]] = []

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("led", tp, leader_epoch))

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        self.heard.append(("resigned", tp, leader_epoch))


class HeldMarkers:
    """Keeps transaction markers instead of sending them to their partitions."""

    def __init__(self) -> None:
        self.held: list[tuple[PendingCompletion, Collection[TopicPartition]]] = []

    def send(self, completion: PendingCompletion, partitions: Collection[TopicPartition]) -> None:
        self.held.append((completion, partitions))


class BrokerRig:
    """Broker 1 of a cluster whose brokers listen on hosts b1, b2, ..."""

    def __init__(self, fs: MemoryFileSystem | None = None, **settings: str) -> None:
        self.fs = fs or MemoryFileSystem()
        self.clock = FakeClock()
        properties = {
            "node.id": str(BROKER_ID),
            "controller.quorum.bootstrap.servers": "c:1",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": DATA,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.config = parsed(properties, "broker")
        self.registry = Registry(self.clock)
        self.scheduler = ManualScheduler(self.clock)
        self.log_manager = LogManager(self.config, self.config.log_dirs, self.clock, self.scheduler, self.fs)
        self.log_manager.open_directories(BROKER_ID)
        self.log_manager.identify(CLUSTER_ID)
        self.log_manager.load_logs()
        names = ("produce", "fetch", "delete_records", "topic", "share_fetch")
        self.purgatories = Purgatories(**{name: Purgatory(name, self.clock) for name in names})
        self.cache = MetadataCache()
        self.manager = ReplicaManager(
            broker_id=BROKER_ID,
            config=self.config,
            clock=self.clock,
            log_manager=self.log_manager,
            metadata_cache=self.cache,
            purgatories=self.purgatories,
            registry=self.registry,
        )
        self.isr_changes = FakeIsrChanges()
        self.manager.isr_updates.channel = self.isr_changes
        self.listening = Listening()
        self.fetchers = FakeFetchers()
        self.dynamic_config = DynamicConfig(self.config)
        keep_logs_configured(self.dynamic_config, self.log_manager)
        keep_throttled(self.dynamic_config, self.manager.quotas.leader, self.manager.quotas.follower)
        self.high_watermarks = HighWatermarks(self.log_manager, self.fs)
        self.leadership = Leadership(
            self.manager, self.high_watermarks, self.dynamic_config.topic_config, self.fetchers
        )
        self.leadership.listeners.append(self.listening)
        self.security = SecurityCache()
        self.push_state = PushState(self.fs, self.log_manager.directories, CLUSTER_ID)
        self.push_gate = PushGate(Receiver(CLUSTER_ID, BROKER_ID, INCARNATION), self.push_state, self.clock)
        self.push_gate.registered(BROKER_EPOCH)
        self.assignments = FakeAssignments()
        self.log_dir_moves = LogDirMoves(
            self.manager,
            self.assignments,
            self.clock,
            thread_count=1,
            bytes_per_second=lambda: self.dynamic_config.broker_value(COPY_RATE),
        )
        self.leadership.log_dirs = self.log_dir_moves
        self.channel = FakeChannel()
        self.woken = 0
        channel: Any = self.channel
        self.marker_writer = MarkerWriter(self.manager, None, self.clock, 1000)  # type: ignore[arg-type]
        self.markers = HeldMarkers()
        self.producer_ids = ProducerIds(BROKER_ID, lambda: BROKER_EPOCH, channel)
        self.transaction_coordinator = TransactionCoordinator(
            config=self.config,
            clock=self.clock,
            scheduler=self.scheduler,
            replica_manager=self.manager,
            metadata_cache=self.cache,
            new_producer_id=self.producer_ids.take,
            markers=self.markers,
        )
        self.share_coordinator = ShareCoordinator(
            config=self.config,
            clock=self.clock,
            scheduler=self.scheduler,
            sensors=ShareStateSensors(self.registry),
            replica_manager=self.manager,
            metadata_cache=self.cache,
        )
        self.persister = DirectPersister(self.share_coordinator)
        self.share_partitions = SharePartitionManager(
            config=self.config,
            clock=self.clock,
            registry=self.registry,
            dynamic_config=self.dynamic_config,
            hosted=self.manager.hosted,
            purgatory=self.purgatories.share_fetch,
            persister=self.persister,
        )
        self.leadership.listeners.append(self.share_partitions)
        self.leadership.listeners += [self.transaction_coordinator, self.share_coordinator]
        self.services = Services(
            broker_id=BROKER_ID,
            cluster_id=CLUSTER_ID,
            config=self.config,
            clock=self.clock,
            registry=self.registry,
            metadata_cache=self.cache,
            security=self.security,
            log_manager=self.log_manager,
            replica_manager=self.manager,
            purgatories=self.purgatories,
            fetch_sessions=FetchSessions(self.clock, self.registry, idle_partitions=self.manager.idle_partitions),
            quotas=ClientQuotas.of(self.config, self.clock),
            forwarding=ForwardingManager(self.config, channel, self.purgatories.topic, self.clock),
            table=TABLE,
            auto_topic_creation=AutoTopicCreation(self.config, channel, self.clock),
            producer_ids=self.producer_ids,
            dynamic_config=self.dynamic_config,
            group_coordinator=SimpleNamespace(on_metadata_update=lambda _former_ids: None),  # type: ignore[arg-type]
            share_groups=SimpleNamespace(is_enabled=False),  # type: ignore[arg-type]
            streams_groups=SimpleNamespace(is_enabled=False),  # type: ignore[arg-type]
            transaction_coordinator=self.transaction_coordinator,
            share_coordinator=self.share_coordinator,
            persister=self.persister,
            share_partitions=self.share_partitions,
            transaction_verification=TransactionVerification(
                broker_id=BROKER_ID,
                clock=self.clock,
                metadata_cache=self.cache,
                coordinator=self.transaction_coordinator,
                scheduler=self.scheduler,
                config=self.config,
                listener_name=LISTENER,
                request_timeout_ms=1000,
            ),
            marker_writer=self.marker_writer,
            leadership=self.leadership,
            push_gate=self.push_gate,
            lifecycle=SimpleNamespace(wake=self._wake),  # type: ignore[arg-type]
            controllers=ControllerNodes({}, ["CONTROLLER"]),
            log_dir_moves=self.log_dir_moves,
            recovery=SimpleNamespace(),  # type: ignore[arg-type]
            client_metrics=self._make_client_metrics(),
        )

    def _make_client_metrics(self) -> ClientMetricsManager:
        receiver = TelemetryReceiver(self.registry)
        manager = ClientMetricsManager(self.clock, self.registry, receiver, self.config.telemetry_max_bytes)
        manager.follow(self.dynamic_config)
        return manager

    def _wake(self) -> None:
        self.woken += 1

    # Requests

    def request(
        self, message: Message, version: int, *, client_id: str = "tester", listener: str = LISTENER
    ) -> Request:
        header = RequestHeader(message.API_KEY, version, 7, client_id)
        context = RequestContext(listener, LISTENER, "127.0.0.1", 5, "connection")
        request = Request.for_message(header, message, context)
        request.api = TABLE[message.API_KEY]
        return request

    def answer(self, message: Message, version: int, **about: Any) -> Any:
        """Carry a request out; returns its response, a `Waiting`, or the NoReply or Close itself."""
        request = self.request(message, version, **about)
        answer = TABLE[message.API_KEY].handle(self.services, request)
        moved, request.moved = request.moved, []
        if isinstance(answer, Park):
            waiting = Waiting(request, self.manager.complete_delayed)
            waiting.wait(answer)
        self.services.complete_all_delayed(moved)
        assert self.manager.hosted.violations() == []
        if isinstance(answer, Park):
            return waiting if waiting.response is None else waiting.response
        assert isinstance(answer, Reply | NoReply | Close)
        return answer.message if isinstance(answer, Reply) else answer

    def advance_ms(self, ms: int) -> None:
        """Advance the clock, expire waiting requests and run due tasks."""
        self.clock.advance_ms(ms)
        p = self.purgatories
        for purgatory in (p.produce, p.fetch, p.delete_records, p.topic, p.share_fetch):
            purgatory.advance()
        self.scheduler.run_due()

    # The controller's push

    def push(
        self,
        topics: Mapping[str, list[dict[str, Any]]],
        *,
        type_: int = INCREMENTAL,
        brokers: Iterable[int] = (1, 2, 3),
        incarnation: int = 0,
        live: bool = True,
    ) -> Any:
        """Push topics to the broker: `{name: [state of partition 0, ...]}`, see `state`."""
        answer = self.answer(self.leader_and_isr(topics, type_=type_, incarnation=incarnation), 7)
        if live:
            self.answer(self.update_metadata(topics, type_=type_, brokers=brokers, incarnation=incarnation), 8)
        return answer

    def leader_and_isr(
        self,
        topics: Mapping[str, list[dict[str, Any]]],
        *,
        type_: int = INCREMENTAL,
        incarnation: int = 0,
        offset: int = PUSH_OFFSET,
        **epochs: int,
    ) -> leader_wire.LeaderAndIsrRequest:
        request = leader_wire.LeaderAndIsrRequest(
            controller_id=100,
            controller_epoch=epochs.get("controller_epoch", 1),
            broker_epoch=epochs.get("broker_epoch", BROKER_EPOCH),
            type=type_,
            topic_states=[
                leader_wire.LeaderAndIsrTopicState(
                    topic_name=name,
                    topic_id=topic_id(name, incarnation),
                    partition_states=[
                        leader_wire.LeaderAndIsrPartitionState(partition_index=index, **s)
                        for index, s in enumerate(states)
                        if BROKER_ID in s["replicas"]
                    ],
                )
                for name, states in topics.items()
            ],
        )
        return pushed(request, offset)

    def update_metadata(
        self,
        topics: Mapping[str, list[dict[str, Any]]],
        *,
        type_: int = INCREMENTAL,
        brokers: Iterable[int] = (1, 2, 3),
        incarnation: int = 0,
        registrations: Iterable[RegisterBrokerRecord] = (),
        offset: int = PUSH_OFFSET,
    ) -> metadata_wire.UpdateMetadataRequest:
        request = metadata_wire.UpdateMetadataRequest(
            controller_id=100,
            controller_epoch=1,
            broker_epoch=BROKER_EPOCH,
            type=type_,
            topic_states=[
                metadata_wire.UpdateMetadataTopicState(
                    topic_name=name,
                    topic_id=topic_id(name, incarnation),
                    partition_states=[_metadata_state(index, s) for index, s in enumerate(states)],
                )
                for name, states in topics.items()
            ],
            live_brokers=[
                metadata_wire.UpdateMetadataBroker(
                    id=id_,
                    rack=f"r{id_}",
                    endpoints=[
                        metadata_wire.UpdateMetadataEndpoint(
                            host=f"b{id_}", port=9092, listener=LISTENER, security_protocol=0
                        )
                    ],
                )
                for id_ in brokers
            ],
        )
        set_records(request, registrations)
        return pushed(request, offset)

    def stop_replica(
        self,
        tp: TopicPartition,
        *,
        leader_epoch: int,
        delete: bool,
        records: Iterable[RemoveTopicRecord | PartitionRecord] | None = None,
        offset: int = PUSH_OFFSET,
    ) -> Any:
        """Push a StopReplica; its `records` name the reason, by default the deletion of the topic."""
        request = stop_wire.StopReplicaRequest(
            controller_id=100,
            controller_epoch=1,
            broker_epoch=BROKER_EPOCH,
            topic_states=[
                stop_wire.StopReplicaTopicState(
                    topic_name=tp.topic,
                    partition_states=[
                        stop_wire.StopReplicaPartitionState(
                            partition_index=tp.partition, leader_epoch=leader_epoch, delete_partition=delete
                        )
                    ],
                )
            ],
        )
        set_records(request, [RemoveTopicRecord(topic_id=topic_id(tp.topic))] if records is None else records)
        return self.answer(pushed(request, offset), 4)

    def close(self) -> None:
        self.log_manager.shutdown()


def pushed(request: Any, offset: int = PUSH_OFFSET) -> Any:
    """A push of this metadata offset, addressed to the test broker."""
    set_receiver(request, Receiver(CLUSTER_ID, BROKER_ID, INCARNATION))
    set_offset(request, offset)
    return request


def state(leader: int, replicas: Iterable[int] = (1,), isr: Iterable[int] | None = None, **more: Any) -> dict[str, Any]:
    """A partition's state; epochs are 0 unless given."""
    replicas = list(replicas)
    return {
        "leader": leader,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "replicas": replicas,
        "isr": replicas if isr is None else list(isr),
        **more,
    }


def registration(broker_id: int, *, epoch: int = 33, fenced: bool = False, leaving: bool = False) -> Any:
    """A broker's registration record, as tag 10000 carries it."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes(16),
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name=LISTENER, host=f"b{broker_id}", port=9092, security_protocol=0)],
        rack=f"r{broker_id}",
        fenced=fenced,
        in_controlled_shutdown=leaving,
    )


def _metadata_state(index: int, s: dict[str, Any]) -> metadata_wire.UpdateMetadataPartitionState:
    return metadata_wire.UpdateMetadataPartitionState(
        partition_index=index,
        leader=s["leader"],
        leader_epoch=s["leader_epoch"],
        zk_version=s["partition_epoch"],
        isr=s["isr"],
        replicas=s["replicas"],
        offline_replicas=s.get("offline", []),
    )


def batch(*values: bytes, **options: Any) -> bytes:
    """A record batch of these values."""
    timestamp = options.pop("timestamp_ms", 1_700_000_000_000)
    return build_batch([SimpleRecord(timestamp, None, value) for value in values], **options)


def produce(
    records: bytes | None, *, topic: str = "t", partition: int = 0, acks: int = 1, timeout_ms: int = 1000
) -> Any:
    """A Produce request for one partition, its records writable as in a received frame."""
    view = None if records is None else memoryview(bytearray(records))
    return produce_wire.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            produce_wire.TopicProduceData(
                name=topic,
                topic_id=topic_id(topic),
                partition_data=[produce_wire.PartitionProduceData(index=partition, records=view)],
            )
        ],
    )


def fetch(offset: int, *, topic: str = "t", partition: int = 0, **about: Any) -> Any:
    """A Fetch request for one partition; `item` holds more fields of the partition, `about` those of the request."""
    item = about.pop("item", {})
    return fetch_wire.FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **about},
        topics=[
            fetch_wire.FetchTopic(
                topic=topic,
                topic_id=topic_id(topic),
                partitions=[
                    fetch_wire.FetchPartition(
                        **{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **item}
                    )
                ],
            )
        ],
    )


def fetch_changes(
    changed: Iterable[tuple[int, int, int, int]],
    forgotten: Sequence[int] = (),
    *,
    id_: bytes = topic_id("t"),
    **about: Any,
) -> Any:
    """A Fetch request in a session, for each (partition, offset, leader epoch, log start); `about` as for `fetch`."""
    partitions = [
        fetch_wire.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            log_start_offset=start,
            partition_max_bytes=1 << 20,
        )
        for partition, offset, epoch, start in changed
    ]
    return fetch_wire.FetchRequest(
        **{"min_bytes": 1, "max_bytes": 1 << 20, **about},
        topics=[fetch_wire.FetchTopic(topic_id=id_, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[fetch_wire.ForgottenTopic(topic_id=id_, partitions=list(forgotten))]
        if forgotten
        else [],
    )
