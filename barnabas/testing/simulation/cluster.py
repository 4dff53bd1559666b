"""SimulatedCluster: the value of the fixture `simulated_cluster`.

All times are seconds of virtual time. A wait costs only the work that is done during it.

Threads: the test's tasks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.client.connection import NodeConnection
from barnabas.client.errors import NodeConnectionError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k19_create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.testing.records import Record
from barnabas.testing.simulation.application import Application
from barnabas.testing.simulation.faults import Faults
from barnabas.testing.simulation.machine.network.links import DELAY_NS, SPREAD_NS, Network
from barnabas.testing.simulation.machine.process import Process
from barnabas.testing.simulation.machine.scheduler import NS_PER_S, Scheduler
from barnabas.testing.simulation.nodes import Nodes, SimulatedNode
from barnabas.testing.topic_reader import CLIENT_ID, TopicReader

START_S: Final = 60
WAIT_S: Final = 60.0
POLL_S: Final = 0.05
CREATE_TOPICS_VERSION: Final = 7
REQUEST_TIMEOUT_MS: Final = 5_000
TEST_ADDRESS: Final = "10.0.1.1"
#: The errors of CreateTopics that pass while a cluster gets well.
_PASSING: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REPLICATION_FACTOR)


class ClusterNode:
    """A broker or a controller: what a test can do to it."""

    def __init__(self, cluster: SimulatedCluster, node: SimulatedNode) -> None:
        self._cluster = cluster
        self._node = node

    def __repr__(self) -> str:
        return self._node.name

    @property
    def id(self) -> int:
        """Its node id."""
        return self._node.node.node_id

    @property
    def address(self) -> str:
        """Its address in the simulated network."""
        return self._node.node.host

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._node.is_running

    def kill(self) -> None:
        """End its process as SIGKILL does; its disk keeps what was written."""
        self._check_running()
        self._cluster.tell(f"{self} is killed")
        self._node.kill()

    def lose_power(self) -> None:
        """End its process, and lose what its disk has not flushed."""
        self._check_running()
        self._cluster.tell(f"{self} loses power")
        self._node.lose_power()

    def stop(self, timeout: float = WAIT_S) -> None:
        """Stop it in order, as SIGTERM does, and wait for its end."""
        self._check_running()
        self._cluster.tell(f"{self} is asked to stop")
        self._node.stop()
        self._cluster.wait_until(lambda: not self.is_running, timeout, f"the end of {self}")

    def start(self) -> None:
        """Start it again on its disk; returns at once."""
        if self.is_running:
            raise ValueError(f"{self} runs already")
        self._cluster.tell(f"{self} starts")
        self._node.start()

    def restart(self) -> None:
        """Kill it if it runs, and start it."""
        if self.is_running:
            self.kill()
        self.start()

    def pause(self) -> None:
        """Stop its threads as SIGSTOP does. Connections stay open, and get no answer."""
        self._check_running()
        process = self._process()
        if not process.is_paused:
            self._cluster.tell(f"{self} is paused")
            self._cluster.scheduler.pause(process)

    def resume(self) -> None:
        """End a pause, as SIGCONT does."""
        process = self._process()
        if process.is_paused and not process.is_dead:
            self._cluster.tell(f"{self} runs on")
            self._cluster.scheduler.resume(process)

    def cut_off(self, *others: ClusterNode | Application) -> None:
        """Deliver nothing between it and these nodes and programs; without any, between it and all of them."""
        self._cluster.tell(f"{self} is cut off from {', '.join(map(repr, others)) or 'everything'}")
        for address in self._addresses(others):
            self._cluster.network.cut(self._node.node.host, address)
            self._cluster.network.cut(address, self._node.node.host)

    def reconnect(self) -> None:
        """End every `cut_off` of it, and deliver what was held."""
        self._cluster.tell(f"{self} is reconnected")
        for address in self._addresses(()):
            self._cluster.network.heal(self._node.node.host, address)
            self._cluster.network.heal(address, self._node.node.host)

    def slow_down(self, delay: float, *others: ClusterNode | Application) -> None:
        """Let what passes between it and these nodes and programs (none: all) take this much longer; 0 ends it."""
        if delay < 0:
            raise ValueError(f"a delay of {delay:g} s is negative")
        self._cluster.tell(f"the links of {self} take {delay:g} s more")
        for address in self._addresses(others):
            for link in (
                self._cluster.network.link(self._node.node.host, address),
                self._cluster.network.link(address, self._node.node.host),
            ):
                link.delay_ns = DELAY_NS + int(delay * NS_PER_S)
                link.spread_ns = SPREAD_NS + int(delay * NS_PER_S) // 2

    def fill_disk(self, left_bytes: int = 0) -> None:
        """Leave its disk no more space than this; a log directory that meets the end goes offline, as in Kafka."""
        self._cluster.tell(f"the disk of {self} is full but for {left_bytes} bytes")
        self._node.disk.faults.fill(left_bytes)

    def repair_disk(self) -> None:
        """End `fill_disk`. Restart it, if it has given up a log directory."""
        self._cluster.tell(f"the disk of {self} is repaired")
        self._node.disk.faults.repair()

    def move_clock(self, seconds: float) -> None:
        """Move its wall clock forward, or back."""
        self._cluster.tell(f"the clock of {self} jumps by {seconds:g} s")
        self._process().wall_offset_ns += int(seconds * NS_PER_S)

    def _process(self) -> Process:
        process = self._node.process
        if process is None:
            raise ValueError(f"{self} was never started")
        return process

    def _check_running(self) -> None:
        if not self.is_running:
            raise ValueError(f"{self} does not run")

    def _addresses(self, others: tuple[ClusterNode | Application, ...]) -> list[str]:
        given = [other.address for other in others] or self._cluster.addresses()
        return [address for address in given if address != self._node.node.host]


class SimulatedCluster:
    """A cluster in virtual time: `bootstrap` for clients, faults, and the test's own programs."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        brokers: int,
        config: Mapping[str, object],
        controllers: int = 1,
    ) -> None:
        properties = {key: _property(value) for key, value in config.items()}
        self.scheduler = scheduler
        self.network = network
        self.nodes = Nodes(scheduler, network, brokers, properties, controllers)
        self.story: list[str] = []  # what happened to it, in words
        self.applications: list[Application] = []
        self.nodes.tell = self.tell
        self._addresses = [TEST_ADDRESS]
        self._random_faults: Faults | None = None

    def __repr__(self) -> str:
        return f"<SimulatedCluster of {len(self.nodes.brokers)} brokers, seed {self.seed}>"

    # -- what it is

    @property
    def bootstrap(self) -> str:
        """Its address for clients."""
        return ",".join(f"{host}:{port}" for host, port in self.nodes.bootstrap())

    @property
    def seed(self) -> int:
        """The seed that decides everything."""
        return self.scheduler.seed

    @property
    def now(self) -> float:
        """The virtual time since the simulation began."""
        return self.scheduler.now_ns / NS_PER_S

    @property
    def brokers(self) -> list[ClusterNode]:
        """All brokers, by id."""
        return [ClusterNode(self, node) for node in self.nodes.brokers]

    @property
    def controller(self) -> ClusterNode:
        """The controller; of several, the active one."""
        return ClusterNode(self, self.nodes.controller)

    @property
    def controllers(self) -> list[ClusterNode]:
        """All controllers, by id."""
        return [ClusterNode(self, node) for node in self.nodes.controllers]

    def broker(self, node_id: int) -> ClusterNode:
        """Return a broker; raises ValueError if there is none of this id."""
        for each in self.brokers:
            if each.id == node_id:
                return each
        raise ValueError(f"there is no broker {node_id}: they are {', '.join(str(each.id) for each in self.brokers)}")

    def leader(self, topic: str, partition: int = 0) -> ClusterNode:
        """Return the broker that leads a partition; raises ValueError if no broker does."""
        image = self.nodes.committed_image()
        for found in () if image is None else image.topics.values():
            state = found.partitions.get(partition) if found.name == topic else None
            if state is not None and state.leader >= 0:
                return self.broker(state.leader)
        raise ValueError(f"{topic}-{partition} has no leader")

    # -- time

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.scheduler.sleep_ns(int(seconds * NS_PER_S))

    def wait_until(self, condition: Callable[[], object], timeout: float = WAIT_S, what: str = "the condition") -> None:
        """Wait until a condition is true; raises AssertionError if it is not within `timeout`."""
        limit_ns = self.scheduler.now_ns + int(timeout * NS_PER_S)
        while not condition():
            if self.scheduler.now_ns >= limit_ns:
                raise AssertionError(f"{what} did not come within {timeout:g} s")
            self.sleep(POLL_S)

    # -- the test's programs

    def run(self, function: Callable[..., object], *args: Any, name: str = "", **kwargs: Any) -> Application:
        """Run a function in a process of its own, with an address of its own; returns at once."""
        address = f"10.0.1.{len(self._addresses) + 1}"
        self._addresses.append(address)
        name = name or f"{getattr(function, '__name__', 'program')}-{len(self.applications) + 1}"
        self.network.names[name] = address
        started = Application(self.scheduler, name, address, function, args, kwargs, self.tell)
        self.applications.append(started)
        return started

    # -- faults

    def random_faults(self, seconds: float) -> None:
        """Let faults of the seed's choice happen for so long, one after the other, then end them all."""
        self._random_faults = Faults(
            self.scheduler, self.network, self.nodes, random.Random(f"{self.seed}/faults/{self.scheduler.now_ns}")
        )
        self._random_faults.told = self.story
        self._random_faults.run(self.scheduler.now_ns + int(seconds * NS_PER_S))
        self.heal()

    def heal(self, timeout: float = WAIT_S) -> None:
        """End all faults, start what does not run, and wait until every replica is in sync again."""
        faults = self._random_faults or Faults(self.scheduler, self.network, self.nodes, random.Random(self.seed))
        faults.told = self.story
        for node in (*self.brokers, *self.controllers):
            node.slow_down(0)
        faults.heal()
        self.wait_until(self.nodes.are_in_sync, timeout, "the way back of every replica into its ISR")

    # -- content

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, and wait for its leaders; return its name. It has a replica on each of up to 3 brokers."""
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=min(3, len(self.brokers)) if replication_factor is None else replication_factor,
            configs=[CreatableTopicConfig(name=key, value=_property(value)) for key, value in (config or {}).items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS)
        self.wait_until(lambda: self._is_created(request), what=f"the creation of topic {name}")
        self.wait_until(lambda: self._has_leaders(name, partitions), what=f"a leader of each partition of {name}")
        return name

    def records(self, topic: str, *, isolation: str = "read_committed", timeout: float = WAIT_S) -> list[Record]:
        """Return all records of a topic, by partition and offset."""
        with TopicReader(self.bootstrap, topic, committed_only=isolation == "read_committed") as reader:
            self.wait_until(reader.read, timeout, f"the end of every partition of {topic}")
            return reader.records

    # -- for the fixture

    def start(self) -> None:
        """Start it, and wait until clients can use every broker."""
        self.nodes.start()
        limit_ns = self.scheduler.now_ns + START_S * NS_PER_S
        while not self.nodes.all_serve():
            problems = self.nodes.problems()
            if problems or self.scheduler.now_ns >= limit_ns:
                raise ValueError("; ".join(problems) or f"the cluster did not start within {START_S} s")
            self.sleep(POLL_S)

    def addresses(self) -> list[str]:
        """Return the addresses of all nodes and programs."""
        return [node.node.host for node in self.nodes.by_id.values()] + self._addresses

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now:10.6f} s  {text}")
        self.scheduler.digest.note(self.scheduler.now_ns, text)

    def _is_created(self, request: CreateTopicsRequest) -> bool:
        for host, port in self.nodes.bootstrap():
            connection = NodeConnection(host, port, timeout_ms=REQUEST_TIMEOUT_MS, client_id=CLIENT_ID)
            try:
                found = connection.send(request, CREATE_TOPICS_VERSION).topics[0]
            except NodeConnectionError:
                continue
            finally:
                connection.close()
            if found.error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                return True
            if found.error_code not in _PASSING:
                error = ErrorCode(found.error_code).name
                raise ValueError(f"topic {request.topics[0].name}: {error}: {found.error_message or ''}")
        return False

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        with TopicReader(self.bootstrap, topic, committed_only=False) as reader:
            return reader.read() and all(self._leads(topic, partition) for partition in range(partitions))

    def _leads(self, topic: str, partition: int) -> bool:
        try:
            return self.leader(topic, partition).is_running
        except ValueError:
            return False


def _property(value: object) -> str:
    """A setting's text, as a file of properties has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
