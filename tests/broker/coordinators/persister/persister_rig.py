"""A persister on broker 0, and share coordinators on brokers 0 to 2 that share one log; shared by the tests."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from barnabas.broker.apis.table import TABLE
from barnabas.broker.coordinators.persister.persister import SharePersister
from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET, SharePartitionKey, StateBatch, StateWrite
from barnabas.broker.metadata.metadata_cache import (
    SHARE_GROUP_STATE_TOPIC,
    BrokerInfo,
    Endpoint,
    MetadataCache,
    MetadataSnapshot,
    PartitionInfo,
    TopicInfo,
)
from barnabas.broker.requests.parking import Park
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema import Message
from tests.broker.coordinators.share_state.shard_rig import TOPIC_ID, ShareStateRig

KEYS = [SharePartitionKey(group, TOPIC_ID, n) for group in ("g", "h") for n in range(3)]


class Coordinator:
    """The shard, if this broker leads; the local one of the persister is called as the real one is."""

    def __init__(self, rig: PersisterRig, broker_id: int) -> None:
        self._rig = rig
        self._broker_id = broker_id

    def partition_for(self, _key: str) -> int:
        return 0

    def handle(self, operations: Any) -> None:
        if self._rig.breaks:
            raise ZeroDivisionError
        if self._rig.leader == self._broker_id:
            self._rig.state.shard.handle(operations)
        else:
            self._rig.closed.shard.handle(operations)


class Connection:
    """Carries requests to a broker's APIs, by way of their bytes."""

    def __init__(self, rig: PersisterRig, broker_id: int) -> None:
        self._rig = rig
        self._services = SimpleNamespace(share_coordinator=Coordinator(rig, broker_id))
        self.sent: list[Message] = []

    def again(self, number: int) -> None:
        """Have a request that was sent before arrive once more; nobody waits for its response."""
        message = self.sent[number % len(self.sent)]
        TABLE[message.API_KEY].handle(self._services, SimpleNamespace(message=message))  # type: ignore[attr-defined]

    def send(self, message: Message, version: int) -> Any:
        lost = self._rig.loses.pop(0) if self._rig.loses else ""
        if lost == "request":
            raise NodeConnectionError("hung up")
        key = message.API_KEY  # type: ignore[attr-defined]
        self.sent.append(message)
        received = request_class(key).decode(memoryview(message.encode(version)), version, 0)
        answer: Any = TABLE[key].handle(self._services, SimpleNamespace(message=received))
        response = answer.operation.response() if isinstance(answer, Park) else answer.message
        if response is None or lost == "response":
            raise NodeConnectionError("no response in time")
        return response_class(key).decode(memoryview(response.encode(version)), version, 0)


class Queued:
    """The senders' queues without their threads: the test carries."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Any]] = []
        self.is_closed = False

    def send(self, destination: int, item: Any) -> None:
        self.waiting.append((destination, item))

    def shutdown(self) -> None:
        self.is_closed = True
        self.waiting.clear()


class PersisterRig:
    """See the module. `leader` coordinates everything; `move` makes another broker the leader.

    With `beside` it is a second persister of the same cluster, with the same clock.
    """

    def __init__(self, leader: int = 1, beside: PersisterRig | None = None) -> None:
        self.clock = FakeClock() if beside is None else beside.clock
        self.scheduler = ManualScheduler(self.clock)
        self.state = ShareStateRig(updates_per_snapshot=3) if beside is None else beside.state
        self.closed = ShareStateRig()
        self.closed.shard.close()
        self.cache = MetadataCache()
        self.created: list[str] = []
        self.loses: list[str] = []
        self.breaks = False
        self.leader = leader
        self.know(leader)
        coordinator: Any = Coordinator(self, 0)
        self.persister = SharePersister(
            broker_id=0,
            clock=self.clock,
            coordinator=coordinator,
            metadata_cache=self.cache,
            call_later=lambda wait_ms, job: self.scheduler.schedule_once("later", job, wait_ms),
            create_topic=self.created.append,
            listener_name="PLAINTEXT",
            request_timeout_ms=1000,
        )
        self.queued: Any = Queued()
        self.persister.senders = self.queued
        self.connections: dict[int, Any] = {1: Connection(self, 1), 2: Connection(self, 2)}

    def know(self, leader: int | None) -> None:
        """Set the leader that the broker's metadata names; None: the topic does not exist."""
        brokers = {id_: BrokerInfo(id_, None, {"PLAINTEXT": Endpoint(f"b{id_}", 9, 0)}) for id_ in range(3)}
        topics = {}
        if leader is not None:
            info = PartitionInfo(0, leader, 1, 1, (), (), ())
            topics[SHARE_GROUP_STATE_TOPIC] = TopicInfo(SHARE_GROUP_STATE_TOPIC, b"", {0: info})
        self.cache.snapshot = MetadataSnapshot(brokers, topics)

    def move(self, leader: int, *, is_known: bool = True) -> None:
        """Another broker leads; only what is committed survives."""
        self.state.move()
        self.leader = leader
        if is_known:
            self.know(leader)

    def carry(self) -> list[int]:
        """Let every thread carry once what waits for it; returns the brokers that had something."""
        waiting, self.queued.waiting = self.queued.waiting, []
        by_destination: dict[int, list[Any]] = {}
        for destination, item in waiting:
            by_destination.setdefault(destination, []).append(item)
        for destination, items in by_destination.items():
            self.persister._carry(destination, self.connections.get(destination), items)
        return list(by_destination)

    def run(self, ms: int = 0) -> None:
        """Let all threads and timers do what they have to, for so long."""
        until_ms = self.clock.monotonic_ms() + ms
        while True:
            while self.queued.waiting or self.scheduler.run_due():
                self.carry()
            if self.clock.monotonic_ms() >= until_ms:
                return
            self.clock.advance_ms(50)

    # Calls: what they were answered so far

    def initialize(self, key: SharePartitionKey = KEYS[0], state_epoch: int = 1) -> list[Any]:
        answers: list[Any] = []
        self.persister.initialize(key, state_epoch, NO_START_OFFSET, answers.append)
        return answers

    def write(self, first: int, last: int, key: SharePartitionKey = KEYS[0], *, start_offset: int = 0) -> list[Any]:
        answers: list[Any] = []
        self.persister.write(
            key, StateWrite(1, 0, start_offset, (StateBatch(first, last, 2, 1),), last), answers.append
        )
        return answers

    def read(self, key: SharePartitionKey = KEYS[0], leader_epoch: int = 0) -> list[Any]:
        answers: list[Any] = []
        self.persister.read(key, leader_epoch, answers.append)
        return answers

    def read_summary(self, key: SharePartitionKey = KEYS[0]) -> list[Any]:
        answers: list[Any] = []
        self.persister.read_summary(key, -1, answers.append)
        return answers

    def delete(self, key: SharePartitionKey = KEYS[0], is_wanted: Callable[[], bool] = op.always) -> list[Any]:
        answers: list[Any] = []
        self.persister.delete(key, answers.append, is_wanted)
        return answers
