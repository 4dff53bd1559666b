"""The applications under test: each a few processes that take records from one topic to another, exactly once.

`slots` are the processes that should run. One that is killed, or ends by itself since its producer was fenced or its
time was up, is started again in its slot, with the same transactional id: that aborts what the one before left open.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.kafka_jars import KafkaRuntime, kafka_runtime, streams_runtime
from tests.support.kafka_tools import SMALL_JVM
from tests.support.processes import end_process, tied_to_parent

INPUT = "input"
COPIER = Path(__file__).with_name("copier.py")
COUNTER = Path(__file__).with_name("StreamsCounter.java")
STOP_TIMEOUT_S = 30
JAVA_COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
JAVA_TRANSACTION_SIZE = 100
JAVA_TRANSACTION_TIMEOUT_MS = 10_000


@dataclass(slots=True)
class Application:
    """One application. Used by one thread."""

    name: str
    directory: Path
    bootstrap: str
    slots: int
    children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0

    @property
    def output(self) -> str:
        """Its output topic."""
        return f"output-{self.name}"

    @property
    def group(self) -> str:
        """Its consumer group."""
        return self.name

    @property
    def transactional_ids(self) -> list[str]:
        """Where to find the coordinators of its transactions."""
        return [f"{self.name}-{slot}" for slot in range(self.slots)]

    def command(self, slot: int) -> list[str]:
        """The command line of a process."""
        raise NotImplementedError

    def tend(self) -> None:
        """Start every process that does not run."""
        for slot in range(self.slots):
            child = self.children.get(slot)
            if child is None or child.poll() is not None:
                with (self.directory / f"{self.name}-{slot}.log").open("ab") as log:
                    self.children[slot] = subprocess.Popen(
                        tied_to_parent(self.command(slot)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )
                self.starts += 1

    def kill(self, slot: int) -> None:
        """kill -9."""
        child = self.children[slot]
        child.kill()
        child.wait()

    def stop(self) -> None:
        """Let all end in order."""
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children.values():
            end_process(child, STOP_TIMEOUT_S)

    def last_words(self) -> str:
        """The end of what its processes printed."""
        logs = [self.directory / f"{self.name}-{slot}.log" for slot in range(self.slots)]
        return "\n".join(line for log in logs if log.exists() for line in log.read_text().splitlines()[-8:])


class LibrdkafkaCopier(Application):
    """confluent-kafka (`copier.py`)."""

    def command(self, slot: int) -> list[str]:
        given = {
            "bootstrap": self.bootstrap, "group": self.group, "id": self.transactional_ids[slot], "input": INPUT,
            "output": self.output,
        }  # fmt: skip
        return [sys.executable, str(COPIER), json.dumps(given)]


class JavaCopier(Application):
    """TransactionalMessageCopier of Apache's system tests; it ends when it has copied what was there at its start."""

    def command(self, slot: int) -> list[str]:
        runtime: KafkaRuntime = kafka_runtime()
        return [
            *runtime.command(JAVA_COPIER, *SMALL_JVM),
            "--broker-list", self.bootstrap, "--input-topic", INPUT, "--input-partition", "-1",
            "--output-topic", self.output, "--consumer-group", self.group, "--group-mode", "--use-group-metadata",
            "--transactional-id", self.transactional_ids[slot], "--enable-random-aborts",
            "--transaction-size", str(JAVA_TRANSACTION_SIZE),
            "--transaction-timeout", str(JAVA_TRANSACTION_TIMEOUT_MS),
        ]  # fmt: skip


class StreamsApplication(Application):
    """Kafka Streams with exactly_once_v2 and a state store (`StreamsCounter.java`)."""

    def command(self, slot: int) -> list[str]:
        runtime = streams_runtime()
        program = runtime.command(COUNTER.stem, *SMALL_JVM, classes=runtime.compiled(COUNTER))
        state = self.directory / f"state-{slot}"
        return [*program, self.bootstrap, self.group, INPUT, self.output, str(state)]


KINDS: dict[str, type[Application]] = {
    "librdkafka": LibrdkafkaCopier, "java": JavaCopier, "streams": StreamsApplication,
}  # fmt: skip


def applications(names: Sequence[str], directory: Path, bootstrap: str, slots: int) -> list[Application]:
    """The applications of these names, none of which runs yet."""
    directory.mkdir(parents=True, exist_ok=True)
    return [KINDS[name](name, directory, bootstrap, slots) for name in names]
