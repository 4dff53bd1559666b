"""The applications under test: each is a few processes that copy records from one topic to another, exactly once.

A slot is a process that should run. If it is killed, or ends because its producer was fenced or timed out, it is
started again with the same transactional id, which aborts the transaction that its predecessor left open.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tests.support.access import Access
from tests.support.kafka.kafka_jars import KafkaRuntime, kafka_runtime, streams_runtime
from tests.support.kafka.kafka_tools import SMALL_JVM
from tests.support.processes import end_process, tied_to_parent

INPUT = "input"
COPIER = Path(__file__).with_name("copier.py")
OWN_COPIER = Path(__file__).with_name("SecuredCopier.java")
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
    access: Access
    slots: int
    counts: ClassVar[bool] = False  # it numbers the records of each key; others copy them
    children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: int = 0

    @property
    def user(self) -> str:
        """The user as which it connects to a secured cluster."""
        return self.name

    def rights(self) -> list[str]:
        """The ACLs that it needs (arguments of `barnabas acl add`)."""
        return [
            f"{self.user} read topic:{INPUT}",
            f"{self.user} write topic:{self.output}",
            f"{self.user} read group:{self.group}",
            f"{self.user} write transactional-id:{self.name}- --prefixed",
        ]

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
        """The transactional ids of its slots."""
        return [f"{self.name}-{slot}" for slot in range(self.slots)]

    def command(self, slot: int) -> list[str]:
        """The command line of a process."""
        raise NotImplementedError

    def start_missing(self) -> None:
        """Start every process that is not running."""
        for slot in range(self.slots):
            child = self.children.get(slot)
            if child is None or child.poll() is not None:
                with (self.directory / f"{self.name}-{slot}.log").open("ab") as log:
                    self.children[slot] = subprocess.Popen(
                        tied_to_parent(self.command(slot)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )
                self.starts += 1

    def kill(self, slot: int) -> None:
        """Kill (SIGKILL) the process of a slot."""
        child = self.children[slot]
        child.kill()
        child.wait()

    def stop(self) -> None:
        """Stop all processes with SIGTERM."""
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.children.values():
            end_process(child, STOP_TIMEOUT_S)

    def last_words(self) -> str:
        """The last lines of its processes' output."""
        logs = [self.directory / f"{self.name}-{slot}.log" for slot in range(self.slots)]
        return "\n".join(line for log in logs if log.exists() for line in log.read_text().splitlines()[-8:])


class LibrdkafkaCopier(Application):
    """confluent-kafka (`copier.py`)."""

    def command(self, slot: int) -> list[str]:
        """The command line of a process."""
        given = {
            "client": self.access.librdkafka(self.user), "group": self.group, "id": self.transactional_ids[slot],
            "input": INPUT, "output": self.output,
        }  # fmt: skip
        return [sys.executable, str(COPIER), json.dumps(given)]


class JavaCopier(Application):
    """TransactionalMessageCopier of Apache's system tests; it ends after the records that were present at its start.

    It takes no settings of security. With security it is our own program (`SecuredCopier.java`).
    """

    def command(self, slot: int) -> list[str]:
        """The command line of a process."""
        runtime: KafkaRuntime = kafka_runtime()
        if self.access.security is not None:
            program = runtime.command(OWN_COPIER.stem, *SMALL_JVM, classes=runtime.compiled(OWN_COPIER))
            settings = str(self.access.java_file(self.user))
            return [*program, settings, self.group, self.transactional_ids[slot], INPUT, self.output]
        return [
            *runtime.command(JAVA_COPIER, *SMALL_JVM),
            "--broker-list", self.access.bootstrap, "--input-topic", INPUT, "--input-partition", "-1",
            "--output-topic", self.output, "--consumer-group", self.group, "--group-mode", "--use-group-metadata",
            "--transactional-id", self.transactional_ids[slot], "--enable-random-aborts",
            "--transaction-size", str(JAVA_TRANSACTION_SIZE),
            "--transaction-timeout", str(JAVA_TRANSACTION_TIMEOUT_MS),
        ]  # fmt: skip


class StreamsApplication(Application):
    """Kafka Streams with exactly_once_v2 and a state store (`StreamsCounter.java`), in a classic group."""

    counts = True
    protocol = "classic"
    topology: tuple[str, ...] = ()

    def command(self, slot: int) -> list[str]:
        """The command line of a process."""
        runtime = streams_runtime()
        program = runtime.command(COUNTER.stem, *SMALL_JVM, classes=runtime.compiled(COUNTER))
        state = self.directory / f"state-{slot}"
        settings = str(self.access.java_file(self.user))
        return [*program, settings, self.group, INPUT, self.output, str(state), self.protocol, *self.topology]

    def rights(self) -> list[str]:
        """The ACLs that it needs: it creates topics, and its transactional ids begin with the group's name."""
        return [
            f"{self.user} read topic:{INPUT}",
            f"{self.user} write topic:{self.output}",
            f"{self.user} all topic:{self.group}- --prefixed",
            f"{self.user} read,describe group:{self.group}",
            f"{self.user} write transactional-id:{self.group}- --prefixed",
        ]


class StreamsGroupApplication(StreamsApplication):
    """The same in a streams group (KIP-1071): the coordinator assigns its tasks and makes its internal topics.

    It has a repartition topic, and standby tasks if there is more than one process.
    """

    protocol = "streams"
    topology = ("repartition",)


KINDS: dict[str, type[Application]] = {
    "librdkafka": LibrdkafkaCopier, "java": JavaCopier, "streams": StreamsApplication,
    "streams-group": StreamsGroupApplication,
}  # fmt: skip


def applications(names: Sequence[str], directory: Path, access: Access, slots: int) -> list[Application]:
    """The applications of these names, not started."""
    directory.mkdir(parents=True, exist_ok=True)
    return [KINDS[name](name, directory, access, slots) for name in names]
