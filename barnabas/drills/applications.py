"""Programs that use the cluster of a drill: each a thread of the process that stages it, with clients of its own.

They stand for somebody's services. A learner can stop one and start it again (`barnabas drill stop NAME`), in another
process: a file `DIR/applications/NAME` says whether it is to run, `running` or `stopped`, and NAME.state what it does.

*Threads*: one an application; what is shared is in files.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from barnabas.common.clock import SystemClock
from barnabas.common.deadline import Deadline

RUNNING: Final = "running"
STOPPED: Final = "stopped"
CHECK_S: Final = 0.1
RESTART_S: Final = 0.3
CHANGE_TIMEOUT_MS: Final = 30_000
JOIN_TIMEOUT_S: Final = 10


class Switch:
    """Says whether an application is to run, and whether it does; any process may use it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self._wish = directory / name
        self._state = directory / f"{name}.state"

    @property
    def is_wanted(self) -> bool:
        """Whether the application is to run."""
        return _read(self._wish) == RUNNING

    @property
    def is_running(self) -> bool:
        """Whether it does run."""
        return _read(self._state) == RUNNING

    def want(self, state: str) -> None:
        """Have it run or not."""
        _write(self._wish, state)

    def tell(self, state: str) -> None:
        """Say that it runs or not; the application does."""
        _write(self._state, state)

    def await_state(self, state: str) -> bool:
        """Wait until it runs, or does not; False if that takes too long."""
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
    """At once: a reader sees the old or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
    temporary.write_text(text)
    temporary.replace(path)


def switches(directory: Path) -> list[Switch]:
    """The applications of a drill in this directory of theirs."""
    names = sorted(path.stem for path in directory.glob("*.state") if not path.name.startswith("."))
    return [Switch(directory, name) for name in names]


Work = Callable[["Application"], None]


class Application:
    """A thread that does its work whenever it is to run; work that fails begins again, as a supervised service's."""

    def __init__(self, directory: Path, name: str, work: Work) -> None:
        self.name = name
        self._switch = Switch(directory, name)
        self._work = work
        self._ended = threading.Event()  # set when the drill is over
        self._thread_of_work = threading.Thread(target=self._run, name=f"application-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._switch.want(RUNNING)
        self._switch.tell(RUNNING)
        self._thread_of_work.start()

    def end(self) -> None:
        """Tell the thread to end; `join` waits for it."""
        self._ended.set()

    def join(self) -> None:
        """Wait until the thread has ended, for some time."""
        self._thread_of_work.join(JOIN_TIMEOUT_S)

    @property
    def goes_on(self) -> bool:
        """Whether the work is to go on; asked by the work, often."""
        return not self._ended.is_set() and self._switch.is_wanted

    def pause(self, seconds: float) -> None:
        """Sleep, unless the drill is over."""
        self._ended.wait(seconds)

    def _run(self) -> None:
        while not self._ended.is_set():
            if not self._switch.is_wanted:
                self._switch.tell(STOPPED)
                self.pause(CHECK_S)
                continue
            self._switch.tell(RUNNING)
            with contextlib.suppress(Exception):  # a supervised service: whatever it died of, it is started again
                self._work(self)
            self.pause(RESTART_S if self.goes_on else 0)


# --- works


def produces(bootstrap: str, topic: str, per_second: int, size_bytes: int = 100, **settings: object) -> Work:
    """Produces numbered JSON records with acks=all; records that cannot be written are dropped after a while."""

    def work(application: Application) -> None:
        from confluent_kafka import Producer

        producer = Producer(_settings(bootstrap, application, {"message.timeout.ms": 5000, "linger.ms": 5, **settings}))
        number = 0
        while application.goes_on:
            value = json.dumps({"order": number, "filling": "x" * max(0, size_bytes - 30)})
            with contextlib.suppress(BufferError):
                producer.produce(topic, value, key=str(number))
            number += 1
            producer.poll(0)
            application.pause(1 / per_second)

    return work


def reads(bootstrap: str, topic: str, group: str, handle: Callable[[bytes], object] = json.loads) -> Work:
    """Reads a topic in a group, and commits what it has handled; dies of a record that it cannot handle."""

    def work(application: Application) -> None:
        with _consumer(bootstrap, application, group) as consumer:
            consumer.subscribe([topic])
            while application.goes_on:
                messages = consumer.consume(100, timeout=CHECK_S)
                for message in messages:
                    if message.error() is None:
                        handle(message.value())
                if messages:
                    consumer.commit(asynchronous=False)

    return work


def comes_and_goes(bootstrap: str, topic: str, group: str, stay_s: float) -> Work:
    """Joins a group, and leaves it when it has its partitions: a service that crashes at start, again and again."""

    def work(application: Application) -> None:
        while application.goes_on:
            with _consumer(bootstrap, application, group) as consumer:
                consumer.subscribe([topic])
                while application.goes_on and not consumer.assignment():
                    consumer.poll(CHECK_S)
                consumer.poll(stay_s)

    return work


def asks(bootstrap: str, topic: str, connections: int, pause_s: float = 0) -> Work:
    """Asks for the end of a topic over many connections at once, again and again."""

    def work(application: Application) -> None:
        threads = [
            threading.Thread(target=_ask, args=(bootstrap, application, topic, pause_s), daemon=True)
            for _ in range(connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return work


def _ask(bootstrap: str, application: Application, topic: str, pause_s: float) -> None:
    from barnabas.client.connection import NodeConnection
    from barnabas.protocol.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

    host, _, port = bootstrap.split(",")[0].rpartition(":")
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    with contextlib.suppress(OSError), NodeConnection(host, int(port), client_id=application.name) as connection:
        while application.goes_on:
            connection.send(request, 6)
            application.pause(pause_s)


def creates_topics(bootstrap: str, prefix: str, every_s: float) -> Work:
    """Creates a topic now and then, as a service does that gives each of its customers one."""

    def work(application: Application) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(_settings(bootstrap, application, {}))
        number = 0
        while application.goes_on:
            name = f"{prefix}{number}"
            admin.create_topics([NewTopic(name, 1, 1)], request_timeout=20)[name].result(20)
            number += 1
            application.pause(every_s)

    return work


@contextlib.contextmanager
def _consumer(bootstrap: str, application: Application, group: str) -> Iterator[Any]:
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
    """Settings of a librdkafka client that says nothing."""
    import logging

    silent = logging.getLogger("barnabas.drills.librdkafka")
    if not silent.handlers:
        silent.addHandler(logging.NullHandler())
        silent.propagate = False
    return {"bootstrap.servers": bootstrap, "client.id": application.name, "log_level": 0, "logger": silent, **more}
