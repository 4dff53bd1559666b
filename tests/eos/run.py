"""One run: a cluster, applications that copy and count exactly once, kill -9; then recovery, and the checks.

The victims are brokers (the coordinator of a transaction or of a group, the leader of an output, or any), the
controller, and clients. Brokers restart after a while, clients at once. read_committed readers run all the time. In the
end, every output must match its input for all readers, and no transaction may be open.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import CONTROLLER_ID, Node
from barnabas.common.clock import SystemClock
from tests.eos.applications import INPUT, KINDS, applications
from tests.eos.proof import Topic, copy_problems, count_problems, prefix_problems
from tests.eos.reading import READERS_GROUP, TopicReader, read_all
from tests.support import security_faults
from tests.support.access import PLAINTEXT, Access, security_of
from tests.support.cluster import BarnabasCluster
from tests.support.coordinators import GROUP, TRANSACTION, find_coordinator
from tests.support.history import RECONNECT, Worker
from tests.support.security_faults import SecurityFaults, config_of
from tests.support.waiting import eventually

BROKERS = 3
PARTITIONS = 4
SOURCE, READER = "source", "reader"  # users
KEYS = 5  # in each partition
TURN_S = 0.02  # between two records of each partition
HOLD_MS = (200, 3_000)  # how long a broker is dead
BREATHER_MS = (300, 2_500)  # between two kills
KILLS_PER_PROGRESS = 4  # then every application must make progress
PROGRESS_TIMEOUT_MS = 120_000
FLUSH_TIMEOUT_S = 60
CREATE_TIMEOUT_S = 20
PROBLEMS_SHOWN = 5
CONFIG = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.num.standby.replicas": "1",
    "barnabas.metrics.port": "-1",
}


class ExactlyOnceError(AssertionError):
    """An effect is missing or duplicated, or a transaction is left open."""


class Source(Worker):
    """Produces the input: unique values, a few keys in each partition."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        super().__init__("source")
        self.sent = 0  # of each partition; owner: its thread
        self.errors: list[str] = []  # owner: its thread
        settings = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 600_000}
        self._producer = Producer({**client, "linger.ms": 5, **settings, **RECONNECT})

    def _turn(self) -> None:
        for partition in range(PARTITIONS):
            key, value = f"{partition}-{self.sent % KEYS}", f"{partition}:{self.sent}"
            self._producer.produce(INPUT, value, key, partition=partition, on_delivery=self._delivered)
        self.sent += 1
        self._producer.poll(0)
        self._stopping.wait(TURN_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))

    def _close(self) -> None:
        if self._producer.flush(FLUSH_TIMEOUT_S):
            self.errors.append("records were never acknowledged")


class ExactlyOnceRun:
    """The parts of a run. Owner: the thread that calls `execute`."""

    def __init__(
        self, cluster: BarnabasCluster, names: Sequence[str], slots: int, seed: int, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._access = Access(cluster.directory, cluster.bootstrap, cluster.security)
        self._random = random.Random(seed)
        self._say = say
        self._clock = SystemClock()
        self._started_ms = self._clock.monotonic_ms()
        self._pause = threading.Event()  # never set: waits by the real clock
        self._applications = applications(names, cluster.directory / "applications", self._access, slots)
        self._reader_client = self._access.librdkafka(READER)
        self._readers: dict[str, TopicReader] = {}
        self._security = None if cluster.security is None else SecurityFaults(cluster, self._access, self._random)
        self._dead: tuple[int, Node] | None = None  # when it restarts, the broker
        self._victims: dict[Callable[[], str], int] = {
            self._kill_transaction_coordinator: 5, self._kill_group_coordinator: 3, self._kill_leader: 3,
            self._kill_broker: 1, self._kill_controller: 1, self._kill_client: 5,
        }  # fmt: skip
        if self._security is not None:
            self._victims[self._change_security] = 4

    def execute(self, kills: int) -> None:
        """Kill this many processes, wait until all input is processed, and check; raises ExactlyOnceError."""
        self._create_topics()
        self._allow()
        self._readers = {
            each.name: TopicReader(self._reader_client, each.output, PARTITIONS) for each in self._applications
        }
        with ExitStack() as stack:
            for application in self._applications:
                stack.callback(application.stop)
            for reader in self._readers.values():
                stack.enter_context(reader)
            source = stack.enter_context(Source(self._access.librdkafka(SOURCE)))
            self._await_progress()
            if self._security is not None:
                self._log(", ".join(self._security.change_everything()))
            for number in range(kills):
                self._one_kill(number)
                if number % KILLS_PER_PROGRESS == KILLS_PER_PROGRESS - 1:
                    self._await_progress()
            self._revive(at_once=True)
            self._cluster.await_ready()
            source.stop()
            self._log(f"{source.sent * PARTITIONS} records sent; waiting until all are processed")
            if source.errors:
                raise ExactlyOnceError(f"the source failed: {source.errors[:PROBLEMS_SHOWN]}")
            given = read_all(self._reader_client, INPUT, PARTITIONS)
            self._await_completion(given)
            for application in self._applications:
                application.stop()
            self._check(given)

    # Kills

    def _one_kill(self, number: int) -> None:
        what = ""
        while not what:
            what = self._random.choices(list(self._victims), list(self._victims.values()))[0]()
            if not what:
                self._turn()  # a broker is dead already: wait until it is back, or another victim is drawn
        self._log(f"kill {number}: {what}")
        end_ms = self._clock.monotonic_ms() + self._random.randint(*BREATHER_MS)
        while self._clock.monotonic_ms() < end_ms:
            self._turn()
        for node in self._cluster.nodes.values():
            if not node.is_running and (self._dead is None or node is not self._dead[1]):
                raise ExactlyOnceError(f"{node.name} ended by itself: {node.log_tail(20)}")

    def _turn(self) -> None:
        self._pause.wait(0.05)
        self._revive()
        for application in self._applications:
            application.start_missing()

    def _kill_transaction_coordinator(self) -> str:
        application = self._random.choice(self._applications)
        key = self._random.choice(application.transactional_ids)
        return self._kill_node(self._coordinator(key, TRANSACTION), f"coordinator of transactions of {key}")

    def _kill_group_coordinator(self) -> str:
        group = self._random.choice(self._applications).group
        return self._kill_node(self._coordinator(group, GROUP), f"coordinator of group {group}")

    def _kill_leader(self) -> str:
        output, partition = self._random.choice(self._applications).output, self._random.randrange(PARTITIONS)
        admin = AdminClient({**self._access.librdkafka(), **RECONNECT})
        leader = admin.list_topics(output, CREATE_TIMEOUT_S).topics[output].partitions[partition].leader
        return self._kill_node(self._cluster.nodes.get(leader), f"leader of {output}-{partition}")

    def _kill_broker(self) -> str:
        return self._kill_node(self._random.choice(self._cluster.brokers), "any broker")

    def _kill_controller(self) -> str:
        return self._kill_node(self._cluster.nodes[CONTROLLER_ID], "the controller")

    def _kill_node(self, node: Node | None, what: str) -> str:
        hold_ms = self._random.randint(*HOLD_MS)
        if node is None or self._dead is not None:
            return ""
        self._cluster.stop_node(node, signal.SIGKILL)
        self._dead = (self._clock.monotonic_ms() + hold_ms, node)
        return f"{node.name}, {what}, for {hold_ms} ms"

    def _change_security(self) -> str:
        """Change certificates, a right, a password or a token, and take it back; nobody is killed."""
        return "" if self._security is None or self._dead is not None else self._security.change()

    def _kill_client(self) -> str:
        application = self._random.choice(self._applications)
        slot = self._random.randrange(application.slots)
        application.kill(slot)
        return f"process {slot} of {application.name}"

    def _revive(self, *, at_once: bool = False) -> None:
        if self._dead is not None and (at_once or self._clock.monotonic_ms() >= self._dead[0]):
            self._cluster.start_node(self._dead[1])
            self._dead = None

    def _coordinator(self, key: str, key_type: int) -> Node | None:
        return find_coordinator(self._cluster.brokers, key, key_type, self._access.connect())

    # Waiting

    def _await_progress(self) -> None:
        """Wait until every application has committed more records."""
        before = {name: reader.count for name, reader in self._readers.items()}
        started_ms = self._clock.monotonic_ms()
        for name, reader in self._readers.items():
            self._await(f"{name} makes progress", lambda reader=reader, name=name: reader.count > before[name])
        took_ms = self._clock.monotonic_ms() - started_ms
        counts = ", ".join(f"{name} {reader.count}" for name, reader in self._readers.items())
        self._log(f"all made progress within {took_ms} ms: {counts}")

    def _await_completion(self, given: Topic) -> None:
        wanted = sum(map(len, given.values()))
        for name, reader in self._readers.items():
            self._await(f"{name} has {wanted} records", lambda reader=reader: reader.count >= wanted)
            self._log(f"{name} is done")

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        def probe() -> bool:
            self._turn()
            failed = [reader for reader in self._readers.values() if reader.has_failed]
            return bool(failed) or is_so()

        try:
            eventually(what, probe, PROGRESS_TIMEOUT_MS)
        except AssertionError as error:
            words = "\n".join(f"{each.name}:\n{each.last_words()}" for each in self._applications)
            raise ExactlyOnceError(f"{error}\n{words}") from error

    # Checks

    def _check(self, given: Topic) -> None:
        problems: list[str] = []
        for application in self._applications:
            reader = self._readers[application.name]
            reader.await_end()
            reader.stop()
            made = read_all(self._reader_client, application.output, PARTITIONS)
            whole = read_all(self._reader_client, application.output, PARTITIONS, "read_uncommitted")
            found = prefix_problems(reader.records, made)
            found += count_problems(given, made) if application.counts else copy_problems(given, made)
            problems += [f"{application.name}: {problem}" for problem in found]
            aborted = sum(map(len, whole.values())) - sum(map(len, made.values()))
            self._log(f"{application.name}: {reader.count} committed, {aborted} aborted, {application.starts} starts")
        if self._security is not None:
            self._log(f"{self._security.refusals} requests and logins were refused as they must be")
            problems += self._security.problems()
        if problems:
            raise ExactlyOnceError("\n".join(problems[:PROBLEMS_SHOWN]))

    # Other

    def _create_topics(self) -> None:
        admin = AdminClient(self._access.librdkafka())
        names = [INPUT, *(application.output for application in self._applications)]
        for created in admin.create_topics([NewTopic(name, PARTITIONS, BROKERS) for name in names]).values():
            created.result(CREATE_TIMEOUT_S)

    def _allow(self) -> None:
        """Give the users of a secured cluster the rights that they need."""
        rights = [
            f"{SOURCE} write topic:{INPUT}",
            f"{READER} read group:{READERS_GROUP}",
            f"{READER} read topic:{INPUT}",
        ]
        for application in self._applications:
            rights += [f"{READER} read topic:{application.output}", *application.rights()]
        self._access.allow(self._cluster.brokers, *rights)
        if self._security is not None:
            self._security.prepare()

    def _log(self, text: str) -> None:
        elapsed_s = (self._clock.monotonic_ms() - self._started_ms) / 1000
        self._say(f"{elapsed_s:7.1f} s  {text}")


def run(
    directory: Path,
    kills: int,
    seed: int,
    say: Callable[[str], None],
    names: Sequence[str] = tuple(KINDS),
    slots: int = 1,
    security: str = PLAINTEXT,
) -> None:
    """Start a cluster and do a run in it; raises AssertionError."""
    own = security_of(directory, security, (SOURCE, READER, *names, *security_faults.USERS))
    with BarnabasCluster(
        directory, broker_count=BROKERS, first_port=0, config={**CONFIG, **config_of(own)}, security=own
    ) as cluster:
        ExactlyOnceRun(cluster, names, slots, seed, say).execute(kills)
