"""A Java producer with default settings that notes when each record was sent and when it was acknowledged.

What an event (a broker that leaves, say) costs a client is read off its notes: the longest wait of a record for its
acknowledgement among those sent or waiting at the time.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.kafka_jars import KafkaRuntime
from tests.support.processes import tied_to_parent

SOURCE = Path(__file__).parent / "AckProbe.java"
END_TIMEOUT_S = 150.0
NS_PER_MS = 1_000_000


class Ack(NamedTuple):
    """What became of one record; times in nanoseconds of the machine's monotonic clock."""

    partition: int
    sent_ns: int
    acked_ns: int
    error: str | None

    @property
    def wait_ms(self) -> float:
        """How long the producer waited for it."""
        return (self.acked_ns - self.sent_ns) / NS_PER_MS


@dataclass(slots=True)
class AckProbe:
    """Runs the producer; `with` starts it and ends it."""

    runtime: KafkaRuntime
    bootstrap: str
    topic: str
    partitions: int
    records_per_s: int = 1000
    _child: subprocess.Popen[str] | None = None  # owner: whoever starts it

    def __enter__(self) -> Self:
        arguments = [self.bootstrap, self.topic, str(self.partitions), str(self.records_per_s)]
        command = tied_to_parent([*self.runtime.command(str(SOURCE)), *arguments])
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line == "ready\n", f"the producer ended: {line!r}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()

    def finish(self) -> list[Ack]:
        """Stop sending, wait for what is on its way, and return the notes in the order of acknowledgement."""
        assert self._child is not None
        output, _ = self._child.communicate("", timeout=END_TIMEOUT_S)
        self._child = None
        return [_ack(line) for line in output.splitlines()]


def _ack(line: str) -> Ack:
    partition, sent, acked, error = line.split()
    return Ack(int(partition), int(sent), int(acked), None if error == "-" else error)


def longest_wait_ms(acks: Iterable[Ack], from_ns: int, to_ns: int) -> float:
    """The longest wait of a record that was on its way at some moment between the two."""
    return max((ack.wait_ms for ack in acks if ack.acked_ns >= from_ns and ack.sent_ns <= to_ns), default=0.0)
