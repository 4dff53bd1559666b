"""Programs that use the cluster of a drill: each is a thread of the process that stages it, with its own clients.

They represent the services of a company. Another process can stop and restart one (`barnabas drill stop NAME`): the
file `DIR/applications/NAME` holds the wanted state, `running` or `stopped`, and NAME.state the present one.

*Threads*: one for each application; shared state is in files.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.clock import SystemClock
from barnabas.common.deadline import Deadline

if TYPE_CHECKING:
    from confluent_kafka import Consumer

RUNNING: Final = "running"
STOPPED: Final = "stopped"
CHECK_S: Final = 0.1
RESTART_S: Final = 0.3
CHANGE_TIMEOUT_MS: Final = 30_000
JOIN_TIMEOUT_S: Final = 10


class Switch:
    """The wanted and the present state of an application; any process may use it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._wanted = directory / name
        self._state = directory / f"{name}.state"

    @property
    def is_wanted(self) -> bool:
        """Whether the application should run."""
        return _read(self._wanted) == RUNNING

    @property
    def is_running(self) -> bool:
        """Whether the application runs."""
        return _read(self._state) == RUNNING

    def want(self, state: str) -> None:
        """Set the wanted state: RUNNING or STOPPED."""
        _write(self._wanted, state)

    def report(self, state: str) -> None:
        """Set the present state; only the application calls this."""
        _write(self._state, state)

    def await_state(self, state: str) -> bool:
        """Wait until the application is in a state; return False after a timeout."""
        deadline = Deadline(SystemClock(), CHANGE_TIMEOUT_MS)
        pause = threading.Event()
        while _read(self._state) != state:
            if deadline.is_expired():
                return False
            pause.wait(CHECK_S)
        return True


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
    temporary.write_text(text)
    temporary.replace(path)


def switches(directory: Path) -> list[Switch]:
    """The applications of a drill, from their directory."""
    names = sorted(path.stem for path in directory.glob("*.state") if not path.name.startswith("."))
    return [Switch(directory, name) for name in names]


Work = Callable[["Application"], None]


class Application:
    """A thread that runs its work while it is wanted, and starts failed work again, like a service's supervisor."""

    def __init__(self, directory: Path, name: str, work: Work) -> None:
        self.name = name
        self._switch = Switch(directory, name)
        self._work = work
        self._ended = threading.Event()  # set when the drill is over
        self._thread_of_work = threading.Thread(target=self._run, name=f"application-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._switch.want(RUNNING)
        self._switch.report(RUNNING)
        self._thread_of_work.start()

    def end(self) -> None:
        """Ask the thread to end; `join` waits for it."""
        self._ended.set()

    def join(self) -> None:
        """Wait until the thread has ended, at most JOIN_TIMEOUT_S."""
        self._thread_of_work.join(JOIN_TIMEOUT_S)

    @property
    def should_continue(self) -> bool:
        """Whether the work should continue; the work checks it often."""
        return not self._ended.is_set() and self._switch.is_wanted

    def pause(self, seconds: float) -> None:
        """Sleep; return at once when the drill ends."""
        self._ended.wait(seconds)

    def _run(self) -> None:
        while not self._ended.is_set():
            if not self._switch.is_wanted:
                self._switch.report(STOPPED)
                self.pause(CHECK_S)
                continue
            self._switch.report(RUNNING)
            with contextlib.suppress(Exception):  # like a supervisor: start the service again after any failure
                self._work(self)
            self.pause(RESTART_S if self.should_continue else 0)


# --- works


def produces(bootstrap: str, topic: str, per_second: int, size_bytes: int = 100, **settings: object) -> Work:
    """Produces numbered JSON records with acks=all; drops a record that is not acknowledged within five seconds."""

    def work(application: Application) -> None:
        from confluent_kafka import Producer

        producer = Producer(_settings(bootstrap, application, {"message.timeout.ms": 5000, "linger.ms": 5, **settings}))
        number = 0
        while application.should_continue:
            value = json.dumps({"order": number, "filling": "x" * max(0, size_bytes - 30)})
            with contextlib.suppress(BufferError):
                producer.produce(topic, value, key=str(number))
            number += 1
            producer.poll(0)
            application.pause(1 / per_second)

    return work


def reads(bootstrap: str, topic: str, group: str, handle: Callable[[bytes], object] = json.loads) -> Work:
    """Reads a topic in a group and commits handled records; fails on a record that `handle` rejects."""

    def work(application: Application) -> None:
        with _consumer(bootstrap, application, group) as consumer:
            consumer.subscribe([topic])
            while application.should_continue:
                messages = consumer.consume(100, timeout=CHECK_S)
                for message in messages:
                    if message.error() is None:
                        handle(message.value() or b"")
                if messages:
                    consumer.commit(asynchronous=False)

    return work


def joins_and_leaves(bootstrap: str, topic: str, group: str, stay_s: float) -> Work:
    """Joins a group and leaves it once it has partitions, repeatedly: a service that crashes at start."""

    def work(application: Application) -> None:
        while application.should_continue:
            with _consumer(bootstrap, application, group) as consumer:
                consumer.subscribe([topic])
                while application.should_continue and not consumer.assignment():
                    consumer.poll(CHECK_S)
                consumer.poll(stay_s)

    return work


def lists_offsets(bootstrap: str, topic: str, connections: int, pause_s: float = 0) -> Work:
    """Sends ListOffsets requests for a topic without end, over several connections in parallel."""

    def work(application: Application) -> None:
        threads = [
            threading.Thread(target=_list_offsets, args=(bootstrap, application, topic, pause_s), daemon=True)
            for _ in range(connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return work


def _list_offsets(bootstrap: str, application: Application, topic: str, pause_s: float) -> None:
    from barnabas.client.connection import NodeConnection
    from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    host, _, port = bootstrap.split(",")[0].rpartition(":")
    latest = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, topics=[latest])
    with contextlib.suppress(OSError), NodeConnection(host, int(port), client_id=application.name) as connection:
        while application.should_continue:
            connection.send(request, 6)
            application.pause(pause_s)


def creates_topics(bootstrap: str, prefix: str, every_s: float) -> Work:
    """Creates a topic every `every_s` seconds, like a service that gives each customer a topic."""

    def work(application: Application) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(_settings(bootstrap, application, {}))
        number = 0
        while application.should_continue:
            name = f"{prefix}{number}"
            try:
                admin.create_topics([NewTopic(name, 1, 1)], request_timeout=20)[name].result(20)
            except KafkaException as failure:
                # Why no failure: an earlier request whose answer was lost has created it.
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            number += 1
            application.pause(every_s)

    return work


@contextlib.contextmanager
def _consumer(bootstrap: str, application: Application, group: str) -> Iterator[Consumer]:
    from confluent_kafka import Consumer

    settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 300,
        "fetch.wait.max.ms": 100,
    }
    consumer = Consumer(_settings(bootstrap, application, settings))
    try:
        yield consumer
    finally:
        consumer.close()


def _settings(bootstrap: str, application: Application, more: dict[str, object]) -> dict[str, Any]:
    """Settings of a librdkafka client that logs nothing."""
    import logging

    silent = logging.getLogger("barnabas.drills.librdkafka")
    if not silent.handlers:
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
    return {"bootstrap.servers": bootstrap, "client.id": application.name, "log_level": 0, "logger": silent, **more}
