"""Producers of Kafka's Java client in a JVM (NumberedProducer.java), and the events that they report.

They are idempotent, with the client's defaults: acks=all, up to five requests in flight.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support.history import Worker
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.processes import tied_to_parent

SOURCE = Path(__file__).with_name("NumberedProducer.java")
READ_BYTES = 1 << 20
FLUSH_TIMEOUT_S = 120
JVM = ("-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


@dataclass(frozen=True, slots=True)
class Load:
    """The load of each producer."""

    partitions: int
    producers: int = 1
    first_id: int = 0
    seed: int = 0
    turn_ms: int = 20
    records_per_turn: Sequence[int] = (1,)  # one of these numbers for each partition, at random
    padding_max: int = 0  # bytes
    waiting_max: int = 1_000_000  # records of a producer without an acknowledgement
    session_records: int = 0  # then a producer begins a new idempotent session; 0: never
    settings: Mapping[str, str] = field(default_factory=dict)  # of the client

    def arguments(self, bootstrap: str, topic: str) -> list[str]:
        """The program's command line."""
        numbers = [self.partitions, self.producers, self.first_id, self.seed, self.turn_ms]
        counts = ",".join(map(str, self.records_per_turn))
        limits = [self.padding_max, self.waiting_max, self.session_records]
        settings = {"bootstrap.servers": bootstrap, **self.settings}
        pairs = [f"{key}={value}" for key, value in settings.items()]
        return [topic, *map(str, numbers), counts, *map(str, limits), *pairs]


class RecordEvent(NamedTuple):
    """An event of a record; numbers count from 0 for each producer and partition."""

    kind: str  # "S": passed to the client, "A": acknowledged, "E": failed
    producer: int
    partition: int
    number: int
    offset: int = -1  # of "A"; -1: not in the broker's response
    at_ns: int = 0  # of "A", on the monotonic clock
    error: str = ""  # of "E"


def parse(line: str) -> RecordEvent:
    """The event in a line of the program's output."""
    kind, producer, partition, number, *rest = line.rstrip("\n").split(" ", 4)
    event = RecordEvent(kind, int(producer), int(partition), int(number))
    if kind == "A":
        offset, at_ns = rest[0].split()
        return event._replace(offset=int(offset), at_ns=int(at_ns))
    return event._replace(error=rest[0]) if rest else event


class NumberedProducers(Worker):
    """Runs the program. `on_events` gets all events, on this worker's thread; `stop` returns after the last one."""

    def __init__(
        self,
        runtime: KafkaRuntime,
        bootstrap: str,
        topic: str,
        load: Load,
        on_events: Callable[[Sequence[RecordEvent]], None],
    ) -> None:
        super().__init__("java-producers")
        self._on_events = on_events
        program = runtime.command(SOURCE.stem, *JVM, classes=runtime.compiled(SOURCE))
        command = [*program, *load.arguments(bootstrap, topic)]
        self._child = subprocess.Popen(
            tied_to_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._rest = b""  # owner: its thread; the beginning of a line

    def __exit__(self, failure: type[BaseException] | None = None, *_: object) -> None:
        """Let the program flush and end, within a timeout; after a failure, end it at once.

        The thread ends when it has read all events.
        """
        assert self._child.stdin is not None
        self._child.stdin.close()
        if failure is None:
            self._thread.join(FLUSH_TIMEOUT_S)
        self._child.kill()
        self._thread.join()

    def _turn(self) -> None:
        assert self._child.stdout is not None
        heard = os.read(self._child.stdout.fileno(), READ_BYTES)
        if heard:
            *lines, self._rest = (self._rest + heard).split(b"\n")
            self._on_events([parse(line.decode()) for line in lines])
            return
        self._stopping.set()
        code = self._child.wait()
        assert code == 0, f"the Java producers ended with {code}"

    def _close(self) -> None:
        self._child.kill()
        self._child.wait()
