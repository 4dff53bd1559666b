"""The nodes of a simulated cluster: controllers and brokers, by the server classes that real processes run.

A node keeps its disk and its address; each start is a new process. `barnabas.broker.main` and
`barnabas.controller.main` build their servers in the same way, apart from signals and the real disk. Several
controllers are a quorum, and start with the same cluster id.

Threads: tasks of the simulation.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from barnabas.broker.broker_server import BrokerServer
from barnabas.broker.storage.log_manager import LogDirectoryError
from barnabas.broker.wiring.context import StartError
from barnabas.cluster.node import Node
from barnabas.cluster.plan import Plan
from barnabas.common import threads
from barnabas.common.clock import SystemClock
from barnabas.common.ids import uuid_to_string
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.config import BROKER, CONTROLLER, Config
from barnabas.config.errors import ConfigError
from barnabas.controller.image import Image
from barnabas.controller.main import ControllerServer
from barnabas.controller.metadata.metadata_directory import DirectoryError
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.raft.client.driver import RaftDriver
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.testing.simulation.machine.disk import SimulatedDisk
from barnabas.testing.simulation.machine.network.links import Network
from barnabas.testing.simulation.machine.process import Process
from barnabas.testing.simulation.machine.scheduler import Scheduler, active

DIRECTORY: Final = Path("/data")
#: What is added to the path of each log directory of a broker.
LOG_DIRECTORIES: Final = (("",), ("",), ("-1", "-2"))
#: How long one turn of a thread takes: nodes differ in speed.
STEPS_NS: Final = (1_000, 1_000, 1_000, 3_000)
#: What a simulated cluster sets beside the plan of a local one.
DEFAULTS: Final = {
    "barnabas.metrics.port": "-1",  # pages would add a thread to each process; views can be asked directly
    "barnabas.busy.poll.max.us": "0",  # spinning takes turns, and finds nothing that waiting does not
    "log.index.size.max.bytes": "65536",  # files in memory are copied at each flush
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "metadata.max.idle.interval.ms": "0",  # a calm ends when nothing is written any more
}


class SimulatedNode:
    """A controller or broker, running or not."""

    def __init__(self, scheduler: Scheduler, node: Node, properties: Mapping[str, str]) -> None:
        self.node = node
        self.properties = dict(properties)
        self.disk = SimulatedDisk()
        self.process: Process | None = None  # the latest one
        self.server: Any = None  # BrokerServer or ControllerServer, of the latest process once built
        self.is_stopping = False  # its latest process was asked to stop
        self.problems: list[str] = []  # why its processes ended, unless they were asked to
        self.disks = 1  # how many it has had
        self.starts = 0  # of its processes
        self.tell: Callable[[str], None] = lambda _text: None  # replaced by Nodes
        self._step_ns = random.Random(f"{scheduler.seed}/speed/{node.name}").choice(STEPS_NS)
        self._hits = 0  # operations of its disk that had failed when its latest process started
        self._scheduler = scheduler
        self._stopping: queue.SimpleQueue[str] | None = None

    @property
    def name(self) -> str:
        """`broker-0`, `controller-100`."""
        return self.node.name

    @property
    def is_running(self) -> bool:
        """Whether it has a process that has not ended."""
        return self.process is not None and not self.process.is_dead

    def start(self) -> None:
        """Start a process; returns at once."""
        assert not self.is_running, f"{self.name} runs already"
        self.starts += 1
        self.server = None
        self.is_stopping = False
        self._stopping = None
        self._hits = self.disk.faults.hits
        self.process = Process(self._scheduler, self.name, self.node.host, step_ns=self._step_ns)
        self._scheduler.spawn(self.process, "main", self._main)

    def kill(self) -> None:
        """End the process as SIGKILL does: the disk keeps what was written."""
        assert self.process is not None
        self.disk = self.disk.kill()  # first, since a task of the process does not return from its end
        self.process.kill()

    def lose_power(self, chance: random.Random | None = None) -> None:
        """End the process and lose what was not flushed; each file keeps a random part of it."""
        assert self.process is not None
        self.disk = self.disk.crash(chance or self._scheduler.random)
        self.process.kill()

    def stop(self) -> None:
        """Ask for an orderly end, as SIGTERM does; returns at once."""
        if self._stopping is not None:
            self.is_stopping = True
            self._stopping.put("")

    def _main(self) -> None:
        stopping: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stopping = stopping
        try:
            self.server = server = self._make_server(stopping)
            server.start()
        except (ConfigError, DirectoryError, LogDirectoryError, StartError, ApiError, OSError) as error:
            self._ended(f"{self.name} could not start: {error}")
        else:
            reason = stopping.get()
            if reason:
                self.is_stopping = True
                self._ended(f"{self.name} ended: {reason}")
            server.stop()
        self.kill()  # also the locks on its disk end with it

    def _ended(self, why: str) -> None:
        """Note why a process ended that was not asked to. An error of its disk is a reason."""
        if self.disk.faults.hits > self._hits:
            self.tell(why)
        else:
            self.problems.append(why)

    def thread_died(self, thread_name: str, error: BaseException) -> None:
        """End the process, as `end_at_once` does."""
        why = f"{self.name}: thread {thread_name} died: {error!r}"
        if self._may_die_of(error):
            self._ended(why)
        else:
            self.problems.append(why)
        self.kill()

    def _may_die_of(self, _error: BaseException) -> bool:
        """Whether an error is a reason to end at once, if its disk has failed."""
        return False

    def directories(self) -> list[str]:
        """Return the directories of its data."""
        return [str(self.node.directory)]

    def has_offline_directory(self) -> bool:
        """Whether its process has given up a log directory."""
        return False

    def _make_server(self, stopping: queue.SimpleQueue[str]) -> Any:
        raise NotImplementedError


class SimulatedBroker(SimulatedNode):
    """A broker."""

    def _make_server(self, stopping: queue.SimpleQueue[str]) -> BrokerServer:
        config = Config.from_properties(self.properties, role=BROKER, environment={})
        return BrokerServer(config, SystemClock(), self.disk, stopping.put)

    def directories(self) -> list[str]:
        """See SimulatedNode."""
        return self.properties["log.dirs"].split(",")

    def has_offline_directory(self) -> bool:
        """See SimulatedNode."""
        return self.server is not None and any(each.is_offline for each in self.server.log_manager.directories)


class SimulatedController(SimulatedNode):
    """A controller."""

    def __init__(self, scheduler: Scheduler, node: Node, properties: Mapping[str, str]) -> None:
        super().__init__(scheduler, node, properties)
        self.cluster_id: str | None = None  # fixed before start; None: it is alone, and draws one
        self._committed_before = -1  # by its earlier processes

    @property
    def controller(self) -> QuorumController | None:
        """The controller of its process; None while it does not run."""
        found: QuorumController | None = getattr(self.server, "controller", None)
        return found if self.is_running else None

    @property
    def raft(self) -> RaftDriver | None:
        """Its replica of the quorum; None while it does not run, or if it is alone."""
        found: RaftDriver | None = getattr(self.server, "raft", None)
        return found if self.is_running else None

    @property
    def is_active(self) -> bool:
        """Whether it takes itself for the active controller."""
        return self.controller is not None and self.controller.is_active

    @property
    def committed_offset(self) -> int:
        """The highest offset that one of its processes has known to be committed; -1 if none has."""
        found = self.controller
        return max(self._committed_before, -1 if found is None else found.committed_offset)

    def kill(self) -> None:
        """See SimulatedNode."""
        self._committed_before = self.committed_offset
        super().kill()

    def lose_power(self, chance: random.Random | None = None) -> None:
        """See SimulatedNode."""
        self._committed_before = self.committed_offset
        super().lose_power(chance)

    def _make_server(self, stopping: queue.SimpleQueue[str]) -> ControllerServer:
        config = Config.from_properties(self.properties, role=CONTROLLER, environment={})
        server = ControllerServer(config, SystemClock(), self.disk, self.cluster_id)
        server.endings = stopping  # type: ignore[assignment]
        return server

    def _may_die_of(self, error: BaseException) -> bool:
        """See SimulatedNode. An error of its disk ends a controller (event_loop.py, rule 4)."""
        return isinstance(error, OSError) or (
            isinstance(error, ApiError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR
        )


class Nodes:
    """All nodes of a cluster, by id."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        broker_count: int,
        config: Mapping[str, str],
        controller_count: int = 1,
    ) -> None:
        ports = iter(range(9092, 10_000))
        plan = Plan(
            DIRECTORY,
            range(broker_count),
            0,
            {**DEFAULTS, **config},
            lambda node_id: f"10.0.0.{node_id + 1}",
            lambda _taken: next(ports),
            controller_count=controller_count,
        )
        plan.check()
        planned = plan.make_nodes()
        self.by_id: dict[int, SimulatedNode] = {}
        suffixes = random.Random(f"{scheduler.seed}/directories").choice(LOG_DIRECTORIES)
        cluster_id = uuid_to_string(random.Random(f"{scheduler.seed}/cluster").randbytes(16))
        for node_id, node in planned.items():
            properties = plan.properties(node, planned)
            if node.role == "controller":
                controller = SimulatedController(scheduler, node, properties)
                controller.cluster_id = cluster_id if controller_count > 1 else None
                self.by_id[node_id] = controller
            else:
                properties["log.dirs"] = ",".join(f"{properties['log.dirs']}{suffix}" for suffix in suffixes)
                self.by_id[node_id] = SimulatedBroker(scheduler, node, properties)
            network.names[node.name] = node.host
        threads.set_fatal_handler(self._thread_died)

    @property
    def controllers(self) -> list[SimulatedController]:
        """The controllers, by id."""
        return [node for node in self.by_id.values() if isinstance(node, SimulatedController)]

    @property
    def controller(self) -> SimulatedController:
        """The active controller, of the newest epoch if several take themselves for it; the first one if none does."""
        active = [each for each in self.controllers if each.is_active]
        return max(active, key=lambda each: each.server.controller.epoch, default=self.controllers[0])

    @property
    def committed_offset(self) -> int:
        """The highest offset that a controller has ever known to be committed; -1 if none has."""
        return max(each.committed_offset for each in self.controllers)

    def committed_image(self) -> Image | None:
        """Return what the controllers have committed; None while none that runs knows all of it."""
        images = [each.controller.committed_image for each in self.controllers if each.controller is not None]
        newest = max(images, key=lambda image: image.offset, default=None)
        # Why: the last process that knew a decision may have ended after a broker acted on it.
        return None if newest is None or newest.offset < self.committed_offset else newest

    @property
    def brokers(self) -> list[SimulatedNode]:
        """The brokers, by id."""
        return [node for node in self.by_id.values() if isinstance(node, SimulatedBroker)]

    @property
    def tell(self) -> Callable[[str], None]:
        """What is called with the reasons why processes end whose disk failed."""
        return self.controllers[0].tell

    @tell.setter
    def tell(self, function: Callable[[str], None]) -> None:
        for node in self.by_id.values():
            node.tell = function

    def bootstrap(self) -> list[tuple[str, int]]:
        """Where clients reach the brokers."""
        return [(broker.node.host, broker.node.port) for broker in self.brokers]

    def start(self) -> None:
        """Start all processes; returns at once."""
        for node in self.by_id.values():
            node.start()

    def in_isr(self, tp: TopicPartition) -> list[SimulatedNode]:
        """Return the brokers that the committed ISR of a partition names; none while it is unknown."""
        image = self.committed_image()
        topic = None if image is None else image.topic(tp.topic)
        isr = () if topic is None else topic.partitions[tp.partition].isr
        return [broker for broker in self.brokers if broker.node.node_id in isr]

    def era(self, tp: TopicPartition) -> tuple[int, int]:
        """Return how many processes of brokers have started so far, and the committed leader epoch (-1: unknown)."""
        image = self.committed_image()
        topic = None if image is None else image.topic(tp.topic)
        epoch = -1 if topic is None else topic.partitions[tp.partition].leader_epoch
        return sum(broker.starts for broker in self.brokers), epoch

    def seat(self, tp: TopicPartition) -> tuple[tuple[str, int] | None, int]:
        """Return where the committed leader of a partition is (None: unknown, or there is none), and its epoch."""
        image = self.committed_image()
        topic = None if image is None else image.topic(tp.topic)
        if topic is None:
            return None, -1
        found = topic.partitions[tp.partition]
        nodes = {broker.node.node_id: broker.node for broker in self.brokers}
        leader = nodes.get(found.leader)
        return None if leader is None else (leader.host, leader.port), found.leader_epoch

    def all_serve(self) -> bool:
        """Return whether every node runs, and the active controller uses the present process of every broker."""
        if not all(node.is_running and not node.is_stopping and node.server for node in self.by_id.values()):
            return False
        image = self.committed_image()
        if image is None or not self._have_one_leader():
            return False
        registered = [image.brokers.get(broker.node.node_id) for broker in self.brokers]
        return all(
            # Why the epoch: for a while, the controller does not know that a broker has ended, even if it runs again.
            found is not None and found.is_active and found.epoch == broker.server.link.lifecycle.epoch
            for found, broker in zip(registered, self.brokers, strict=True)
        )

    def are_in_sync(self) -> bool:
        """Return whether every node serves, and every replica of every partition is in its ISR."""
        image = self.committed_image() if self.all_serve() else None
        return image is not None and all(len(each.isr) == len(each.replicas) for _, _, each in image.each_partition())

    def has_left_isrs(self, broker: SimulatedNode) -> bool:
        """Return whether no ISR names a broker."""
        image = self.committed_image()
        return image is not None and all(broker.node.node_id not in each.isr for _, _, each in image.each_partition())

    def is_alone(self, broker: SimulatedNode) -> bool:
        """Return whether a broker is the only member of every ISR."""
        image = self.committed_image()
        return image is not None and all(each.isr == (broker.node.node_id,) for _, _, each in image.each_partition())

    def controllers_agree(self) -> bool:
        """Return whether every controller runs, knows the same leader, and has the log up to what is committed."""
        replicas = [each.raft for each in self.controllers]
        return self._have_one_leader() and all(
            # Why not `end_offset`: it takes the lock of another process.
            replica is None or replica._replica.quorum.outline.end_offset > self.committed_offset
            for replica in replicas
        )

    def is_deciding(self) -> bool:
        """Return whether a change is on its way: a record that is not committed, or an ISR that a leader asked for."""
        active = self.controller.controller
        is_writing = active is not None and active.image.offset != active.committed_offset
        return is_writing or bool(self.proposers())

    def proposers(self) -> list[SimulatedNode]:
        """Return the brokers that have asked for a change of an ISR and have no answer yet."""
        return [
            broker
            for broker in self.brokers
            if broker.is_running
            and getattr(broker.server, "services", None) is not None
            and any(each.role.is_isr_change_in_flight for each in broker.server.services.replica_manager.partitions())
        ]

    def _have_one_leader(self) -> bool:
        """Return whether every controller runs and knows the same leader of the same epoch, which is active."""
        leaders = {None if each.controller is None else each.controller.leader for each in self.controllers}
        return self.controller.is_active and leaders == {self.controller.server.controller.leader}

    def problems(self) -> list[str]:
        """Return why processes ended that were not asked to."""
        return [problem for node in self.by_id.values() for problem in node.problems]

    def _thread_died(self, thread_name: str, error: BaseException) -> None:
        """End the process of the calling task, as `end_at_once` does."""
        task = active().current
        assert task is not None
        for node in self.by_id.values():
            if node.process is task.process:
                node.thread_died(thread_name, error)
