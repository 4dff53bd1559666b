"""Libraries of other languages: programs that read commands from stdin and answer each with a line.

    round SETTINGS TOPIC           produce a record, and read the first one of the topic's only partition
    session SETTINGS TOPIC MS      produce a record every 100 ms by one client

    ok VALUE                       the record's value; the number of records that were acknowledged
    error TEXT                     what the library reports

SETTINGS is a file, JSON or properties (login.py).
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Collection
from pathlib import Path

from tests.clients.security.libraries import RefusedError
from tests.clients.security.login import Login
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.language_programs import go_program, node_program
from tests.support.processes import tied_to_parent

HERE = Path(__file__).parent
END_TIMEOUT_S = 10
#: Java reads tokens of these addresses only.
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


def java(token_addresses: Collection[str]) -> list[str]:
    """Kafka's own client."""
    source = HERE / "SecurityWitness.java"
    runtime = kafka_runtime()
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", _ALLOWED + ",".join(token_addresses)]
    return runtime.command(source.stem, *options, classes=runtime.compiled(source))


def go() -> list[str]:
    """franz-go."""
    return go_program(HERE / "go", "security-witness-go")


def node() -> list[str]:
    """kafkajs."""
    return node_program(HERE / "node", "security-witness-node", "witness.cjs")


class ProgramLibrary:
    """A library by its program; see Library. The program lives as long as the thread that makes this."""

    def __init__(self, command: list[str], directory: Path, *, is_java: bool = False) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._is_java = is_java
        self._numbers = itertools.count()
        with (directory / "stderr").open("wb") as log:
            self._process = subprocess.Popen(
                tied_to_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def round(self, login: Login, topic: str) -> str:
        """See Library."""
        return self._do("round", login, topic)

    def session(self, login: Login, topic: str, duration_ms: int) -> int:
        """See Library."""
        return int(self._do("session", login, topic, str(duration_ms)))

    def close(self) -> None:
        """See Library."""
        try:
            self._process.communicate(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _do(self, action: str, login: Login, *words: str) -> str:
        path = self._directory / f"{next(self._numbers)}.settings"
        (login.write_properties if self._is_java else login.write_json)(path)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(" ".join([action, str(path), *words]) + "\n")
        process.stdin.flush()
        kind, _, text = process.stdout.readline().strip().partition(" ")
        assert kind, f"the program ended: {(self._directory / 'stderr').read_text(errors='replace')}"
        if kind != "ok":
            raise RefusedError(text)
        return text
