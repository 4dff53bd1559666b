"""Client programs in four languages. Each runs one command at a time and prints its library's result.

A program reads commands from stdin and answers each with a line:

    produce TOPIC           one record
    consume TOPIC           one record from the beginning of partition 0
    join TOPIC GROUP        one record as a member of a new group
    create TOPIC            one partition

    ok
    error CODE NAME ...     Kafka's error code as the library gives it, -1 if it has none
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.language_programs import go_program, node_program
from tests.support.programs import KAFKA

HERE = Path(__file__).parent


class Answer(NamedTuple):
    """How a command ended: Kafka's error code, 0 for none."""

    code: int
    line: str


class Program:
    """A running client program."""

    def __init__(self, command: list[str], bootstrap: str, log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [*command, bootstrap], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def do(self, *words: str) -> Answer:
        """Run a command; return its result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().strip()
        assert line, f"the program ended: {Path(self._log.name).read_text(errors='replace')}"
        return Answer(0 if line == "ok" else int(line.split()[1]), line)

    def close(self) -> None:
        """End it."""
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()


def python() -> list[str]:
    """confluent-kafka; it is here already."""
    return [sys.executable, str(HERE / "witness.py")]


def java() -> list[str]:
    """Kafka's own client."""
    source = HERE / "FaultWitness.java"
    runtime = kafka_runtime()
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    return runtime.command(source.stem, *options, classes=runtime.compiled(source))


def go() -> list[str]:
    """franz-go."""
    return go_program(HERE / "go", "fault-witness-go")


def node() -> list[str]:
    """kafkajs."""
    return node_program(HERE / "node", "fault-witness-node", "witness.cjs")


LANGUAGES: dict[str, Callable[[], list[str]]] = {"python": python, "java": java, "go": go, "node": node}
#: What each language needs beside Python's packages.
PROGRAMS: dict[str, tuple[str, ...]] = {"python": (), "java": KAFKA, "go": ("go",), "node": ("node", "npm")}
