"""Replicas with their disks in memory, in one thread: messages travel when a test lets them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from barnabas.common.clock import FakeClock
from barnabas.common.disk.faulty_files import FaultyFileSystem, MemoryFileSystem
from barnabas.common.disk.files import FileSystem
from barnabas.controller.raft import effects as fx
from barnabas.controller.raft.client.driver import RaftDriver
from barnabas.controller.raft.client.interface import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
from barnabas.controller.raft.client.raft_log import RaftLog
from barnabas.controller.raft.log_outline import Membership
from barnabas.controller.raft.raft_config import RaftConfig
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.errors import ApiError
from barnabas.protocol.metadata_records import ConfigRecord, MetadataRecord, encode_record
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.protocol.schema import Message
from tests.controller.rig import CLUSTER_ID, DIRECTORY, make_config

LISTENER = "CONTROLLER"


def listeners_of(node_id: int) -> tuple[Listener, ...]:
    return (Listener(LISTENER, f"n{node_id}", 9000 + node_id),)


def key_of(node_id: int, disk: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, (1000 * disk + node_id).to_bytes(16, "big"))


def voters_of(*ids: int, kraft_version: int = 1) -> Membership:
    keys = [key_of(node_id) if kraft_version else ReplicaKey(node_id) for node_id in ids]
    return Membership(-1, kraft_version, VoterSet(VoterNode(key, listeners_of(key.id), (0, 1)) for key in keys))


def config_record(name: str) -> MetadataRecord:
    return ConfigRecord(resource_type=4, resource_name="", name=name, value="1")


def batch_of(*names: str) -> bytearray:
    records = [SimpleRecord(1, None, encode_record(config_record(name))) for name in names]
    return bytearray(build_batch(records))


def open_log(fs: FileSystem, membership: Membership, **config: str) -> RaftLog:
    fs.mkdir(DIRECTORY)
    return RaftLog(DIRECTORY, make_config(**config), FakeClock(), fs, membership)


class Listened:
    """A listener that keeps what it has: the names of the config records, and the leaders."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.next_offset = 0
        self.epoch = 0  # of the last batch, or of the snapshot
        self.leaders: list[LeaderAndEpoch] = []
        self.snapshots: list[str] = []
        self.has_ended = False

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset, "without gaps"
            self.next_offset, self.epoch = batch.last_offset + 1, batch.epoch
            self._take(batch.records())

    def _take(self, records: Any) -> None:
        self.names += [record.name for record in records if isinstance(record, ConfigRecord)]

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.names = []
        self.snapshots.append(snapshot.path)
        self.next_offset, self.epoch = snapshot.id
        self._take(snapshot.records())

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    def begin_shutdown(self) -> None:
        self.has_ended = True


class Post:
    """The requests of one node, on their way."""

    def __init__(self) -> None:
        self.sent: deque[tuple[fx.Send, Callable[[int, int, Message | None], None]]] = deque()

    def send(self, effect: fx.Send, report: Callable[[int, int, Message | None], None]) -> None:
        self.sent.append((effect, report))

    def stop(self) -> None:
        self.sent.clear()


class Node:
    """One replica and its disk."""

    def __init__(self, node_id: int, membership: Membership, clock: FakeClock, **config: str) -> None:
        self.id = node_id
        self.key = key_of(node_id)
        self.membership = membership
        self.clock = clock
        self.config = config
        self.fs = MemoryFileSystem()  # what is on the disk
        self.is_cut = False
        self.start()

    def start(self) -> None:
        """Begin with what is on the disk."""
        self.is_up = True
        self.listened = Listened()
        self.post = Post()
        self.disk = FaultyFileSystem(self.fs)  # what the process has of it
        self.log = open_log(self.disk, self.membership, **self.config)
        settings = RaftConfig(CLUSTER_ID, listeners_of(self.id))
        self.driver = RaftDriver(settings, self.key, self.log, self.post, self.clock, Random(self.id))
        self.driver.register(self.listened)
        self.driver.begin()

    def crash(self, chance: Random | None = None) -> None:
        """Lose what the disk did not flush, or a part of it."""
        self.is_up = False
        self.fs = self.fs.crash(chance)

    def kill(self) -> None:
        """End the process; what it wrote stays."""
        self.is_up = False
        self.fs = self.fs.kill()

    def fail_after(self, operations: int) -> None:
        """Let the disk fail after so many operations, and the process end by that."""
        self.disk.fail_at = self.disk.operations + operations

    def step(self) -> None:
        """Let the raft thread do what there is to do; the process ends if its disk fails."""
        try:
            self.driver.step()
        except (OSError, ApiError):
            self.crash()

    @property
    def leads(self) -> bool:
        leader = self.driver.leader_and_epoch
        return self.is_up and leader.leader_id == self.id


class Quorum:
    """Nodes that reach each other."""

    def __init__(self, count: int = 3, kraft_version: int = 1, **config: str) -> None:
        self.clock = FakeClock()
        membership = voters_of(*range(1, count + 1), kraft_version=kraft_version)
        self.nodes = {node_id: Node(node_id, membership, self.clock, **config) for node_id in range(1, count + 1)}

    def run(self, duration_ms: int = 100) -> None:
        """Let so much time pass, and everything travel meanwhile."""
        for _ in range(duration_ms // 10):
            self.settle()
            self.clock.advance_ms(10)
        self.settle()

    def settle(self) -> None:
        """Let everything travel that is on its way."""
        for _ in range(1_000):
            if not sum(self._step(node) for node in self.nodes.values() if node.is_up):
                return
        raise AssertionError("the messages do not end")

    def _step(self, node: Node) -> bool:
        node.step()
        had = bool(node.post.sent)
        while node.post.sent:
            self._deliver(node, *node.post.sent.popleft())
        return had

    def _deliver(self, node: Node, effect: fx.Send, report: Callable[[int, int, Message | None], None]) -> None:
        target = self.nodes.get(effect.port - 9000)
        if target is None or not target.is_up or node.is_cut or target.is_cut:
            report(effect.node_id, effect.correlation_id, None)
            return

        def reply(response: Message) -> None:
            version = response.MAX_VERSION
            decoded = type(response).decode(response.encode(version), version)
            report(effect.node_id, effect.correlation_id, None if node.is_cut or target.is_cut else decoded)

        request = type(effect.request).decode(
            effect.request.encode(effect.request.MAX_VERSION), effect.request.MAX_VERSION
        )
        target.driver.handle_request(request, reply)

    def elect(self) -> Node:
        """Let time pass until a node leads and its listener knows; return it."""
        for _ in range(100):
            self.run()
            leaders = [node for node in self.nodes.values() if node.leads and not node.is_cut]
            if leaders and leaders[-1].listened.leaders[-1:] == [leaders[-1].driver.leader_and_epoch]:
                return leaders[-1]
        raise AssertionError("nobody is elected")
