"""A broker without controller, sockets or threads: pushes are applied and requests answered step by step.

Files are in memory, time is fake; everything else is the real thing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from barnabas.broker.answers import Close, NoReply, Park, Reply
from barnabas.broker.apis.services import Purgatories, Services
from barnabas.broker.apis.table import TABLE
from barnabas.broker.auto_topic_creation import AutoTopicCreation
from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transaction_markers import MarkerWriter
from barnabas.broker.coordinators.transaction_shard import Completion
from barnabas.broker.coordinators.transaction_verification import TransactionVerification
from barnabas.broker.dynamic_config import DynamicConfig, keep_logs_configured, keep_throttled
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.push_gate import PushGate
from barnabas.broker.push_state import PushState
from barnabas.broker.replication.high_watermarks import HighWatermarks
from barnabas.broker.replication.leadership import Leadership
from barnabas.broker.replication.log_dir_moves import COPY_RATE, LogDirMoves
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.role import IsrProposal
from barnabas.broker.request_channel import Request, RequestContext
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.common.faulty_files import MemoryFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.config import Config
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

BROKER_ID = 1
CLUSTER_ID = "h3zYrOmsQJqmHD2y0yjFEg"
BROKER_EPOCH = 10
LISTENER = "PLAINTEXT"
DATA = "/data"
INCARNATION = b"\x0a" * 16
PUSH_OFFSET = 20


def topic_id(name: str, incarnation: int = 0) -> bytes:
    """An id for a topic of the tests."""
    return name.encode().rjust(15, b".")[:15] + bytes([incarnation])


class FakeChannel:
    """The way to the controller: keeps what was sent, and how to answer it."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def send(self, message: Any, on_done: Any, **_: Any) -> None:
        self.sent.append((message, on_done))


class FakeFetchers:
    """Remembers what is followed."""

    def __init__(self) -> None:
        self.followed: set[TopicPartition] = set()

    def follow(self, partitions: Iterable[Partition], leaders: Mapping[int, tuple[str, int]]) -> None:
        self.followed.update(p.tp for p in partitions)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        self.followed.difference_update(tps)


class FakeIsrChanges:
    """Keeps proposals, and how to answer them."""

    def __init__(self) -> None:
        self.submitted: list[tuple[TopicPartition, IsrProposal, Any]] = []

    def submit(self, tp: TopicPartition, topic_id: bytes, proposal: IsrProposal, on_done: Any) -> None:
        self.submitted.append((tp, proposal, on_done))


class FakeAssignments:
    """Remembers in which directory each replica lies; the controller accepts it at once, unless `is_slow`."""

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

    def tell_again(self) -> None:
        """A new registration; the controller knows nothing any more."""
        self.told.clear()

    def forget(self, topic_id: bytes, partition: int) -> None:
        self.told.pop((topic_id, partition), None)


class Listening:
    """A coordinator that only remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, TopicPartition, int | None]] = []

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        self.heard.append(("led", tp, leader_epoch))

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        self.heard.append(("resigned", tp, leader_epoch))


class HeldMarkers:
    """Markers that nobody has brought to their partitions yet."""

    def __init__(self) -> None:
        self.held: list[tuple[Completion, Collection[TopicPartition]]] = []

    def send(self, completion: Completion, partitions: Collection[TopicPartition]) -> None:
        self.held.append((completion, partitions))


class BrokerRoom:
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
        self.config = Config.from_properties(properties, "broker")
        self.registry = Registry(self.clock)
        self.scheduler = ManualScheduler(self.clock)
        self.log_manager = LogManager(self.config, self.config.log_dirs, self.clock, self.scheduler, self.fs)
        self.log_manager.open_directories(BROKER_ID)
        self.log_manager.identify(CLUSTER_ID)
        self.log_manager.load_logs()
        names = ("produce", "fetch", "delete_records", "topic")
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
        self.manager.isr_changes = self.isr_changes
        self.listening = Listening()
        self.manager.listeners.append(self.listening)
        self.fetchers = FakeFetchers()
        self.dynamic_config = DynamicConfig(self.config)
        keep_logs_configured(self.dynamic_config, self.log_manager)
        keep_throttled(self.dynamic_config, self.manager.quotas.leader, self.manager.quotas.follower)
        self.high_watermarks = HighWatermarks(self.log_manager, self.fs)
        self.leadership = Leadership(
            self.manager, self.high_watermarks, self.dynamic_config.topic_config, self.fetchers
        )
        self.push_state = PushState(self.fs, self.log_manager.directories, CLUSTER_ID)
        self.push_gate = PushGate(Receiver(CLUSTER_ID, BROKER_ID, INCARNATION), self.push_state)
        self.push_gate.broker_epoch = BROKER_EPOCH
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
        self.manager.listeners.append(self.transaction_coordinator)
        self.services = Services(
            broker_id=BROKER_ID,
            cluster_id=CLUSTER_ID,
            config=self.config,
            clock=self.clock,
            registry=self.registry,
            metadata_cache=self.cache,
            log_manager=self.log_manager,
            replica_manager=self.manager,
            purgatories=self.purgatories,
            fetch_sessions=FetchSessions(self.clock, self.registry),
            controller_channel=channel,
            auto_topic_creation=AutoTopicCreation(self.config, channel),
            producer_ids=self.producer_ids,
            dynamic_config=self.dynamic_config,
            group_coordinator=SimpleNamespace(on_picture=lambda _former_ids: None),  # type: ignore[arg-type]
            transaction_coordinator=self.transaction_coordinator,
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
            log_dir_moves=self.log_dir_moves,
            recovery=SimpleNamespace(),  # type: ignore[arg-type]
        )

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
        """What the client gets now: a response, a `Waiting`, or the NoReply or Close itself."""
        request = self.request(message, version, **about)
        answer = TABLE[message.API_KEY].handle(self.services, request)
        if isinstance(answer, Park):
            waiting = Waiting()
            answer.operation.bind(waiting.take, request)
            if answer.purgatory is not None:
                answer.purgatory.try_complete_else_watch(answer.operation, answer.keys)
        for key in request.moved:
            self.services.complete_delayed(key)
        if isinstance(answer, Park):
            return waiting if waiting.response is None else waiting.response
        assert isinstance(answer, Reply | NoReply | Close)
        return answer.message if isinstance(answer, Reply) else answer

    def advance_ms(self, ms: int) -> None:
        """Let time pass, and what waits run out of it."""
        self.clock.advance_ms(ms)
        p = self.purgatories
        for purgatory in (p.produce, p.fetch, p.delete_records, p.topic):
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
        """Tell the broker of topics: `{name: [state of partition 0, ...]}`, see `state`."""
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
        """Tell the broker to give a replica up; `records` say why, the deletion of its topic unless given."""
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
    """A push of this metadata offset, addressed to the broker of the room."""
    set_receiver(request, Receiver(CLUSTER_ID, BROKER_ID, INCARNATION))
    set_offset(request, offset)
    return request


class Waiting:
    """A parked request; `response` is None until it is answered."""

    def __init__(self) -> None:
        self.response: Any = None

    def take(self, operation: DelayedOperation) -> None:
        self.response = operation.response()


def state(leader: int, replicas: Iterable[int] = (1,), isr: Iterable[int] | None = None, **more: int) -> dict[str, Any]:
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
    """What tag 10000 tells of a broker."""
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
    """A Fetch request for one partition; `item` holds more fields of it, the rest are the request's."""
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
