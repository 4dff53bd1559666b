"""Members of a share group in a process of their own, and what they report: of the Java client (ShareMembers.java), of
librdkafka (librdkafka_share_members.py) and of franz-go (go_share_members/).

`Deliveries` checks the reports: a record is settled (accepted or rejected) by one member, and not delivered after that.
A client may hand out late what it fetched before a broker was killed, and others have settled meanwhile; then its
acknowledgement must be refused.

For this, reports of all processes must be read in their order: a delivery is reported before it is acknowledged, and
all processes write to one pipe. What a member writes is one write of less than PIPE_BUF (4096 bytes) if it gets few
records at a time (max.poll.records), so that lines of several processes do not mix.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.history import Worker
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.kafka_tools import SMALL_JVM
from tests.support.language_programs import go_program
from tests.support.processes import tied_to_parent
from tests.support.programs import path_of

SOURCE = Path(__file__).with_name("ShareMembers.java")
READ_BYTES = 1 << 20
LOOK_S = 0.2  # how often to look whether a process has ended
LEAVE_TIMEOUT_S = 60
GO_OF_FRANZ_GO = 26  # 1.26, which go_share_members/go.mod asks for
GO_THAT_FETCHES = 21  # since then, Go fetches the version that a module asks for
ACCEPT, RELEASE, REJECT = "A", "L", "R"
Position: TypeAlias = tuple[int, int]  # partition, offset


class Deliveries:
    """What members got and acknowledged, as they report it. The members' thread adds, and others read."""

    def __init__(self) -> None:
        self.got: Counter[Position] = Counter()  # deliveries
        self.counts: dict[Position, int] = {}  # the highest delivery count
        self.settled: dict[Position, str] = {}  # accepted or rejected for certain
        self.released: Counter[Position] = Counter()
        self.unknown: Counter[Position] = Counter()  # acknowledgements that may have been taken or not
        self.by_member: Counter[int] = Counter()  # records that a member got
        self.settled_by: Counter[int] = Counter()  # records that a member settled
        self.refusals: Counter[str] = Counter()  # acknowledgements that may not have been taken, by error
        self.late: set[tuple[int, Position]] = set()  # by member: deliveries after the record was settled
        self.mistakes: list[str] = []
        self._pending: dict[tuple[int, Position], str] = {}  # by member

    def add(self, line: str) -> None:
        """Take a line of the program."""
        kind, *fields = line.split(" ")
        if kind == "X":
            return
        member, partition, offset = (int(field) for field in fields[:3])
        position = (partition, offset)
        if kind == "G":
            self._delivered(member, position, int(fields[3]), fields[4])
            return
        delivery = (member, position)
        how = self._pending.pop(delivery, None)
        if how is None:
            self.unknown[position] += 1  # the answer to an earlier delivery to this member
        elif kind == "E":
            self.refusals[" ".join(fields[3:])] += 1
            self.unknown[position] += 1
        elif delivery in self.late or (how != RELEASE and position in self.settled):
            self.mistakes.append(f"{position} is settled or released after it was settled: {line}")
        elif how == RELEASE:  # another member may have got it and settled it meanwhile
            self.released[position] += 1
        else:
            self.settled[position] = how
            self.settled_by[member] += 1

    def unexplained(self) -> list[Position]:
        """Return the records that were delivered more often than they were settled, released or perhaps acknowledged.

        So each delivery must have had its answer. To be asked when the members have left.
        """
        return [
            position
            for position, count in self.got.items()
            if count > (position in self.settled) + self.released[position] + self.unknown[position]
        ]

    def _delivered(self, member: int, position: Position, count: int, how: str) -> None:
        if position in self.settled:
            self.late.add((member, position))
        self.got[position] += 1
        self.by_member[member] += 1
        self.counts[position] = max(count, self.counts.get(position, 0))
        self._pending[member, position] = how


def java_members(runtime: KafkaRuntime) -> list[str]:
    """Return the command of members of the Java client, without its arguments."""
    return runtime.command(SOURCE.stem, *SMALL_JVM, classes=runtime.compiled(SOURCE))


def librdkafka_members() -> list[str]:
    """Return the command of members of librdkafka, without its arguments."""
    return [sys.executable, str(SOURCE.with_name("librdkafka_share_members.py"))]


def go_members() -> list[str]:
    """Return the command of members of franz-go, without its arguments; skip the test if Go is too old for it.

    Why no failure with REQUIRE_TOOLS=1: Debian's own Go is older.
    """
    go = path_of("go") or "go"
    shown = subprocess.run([go, "env", "GOVERSION", "GOTOOLCHAIN"], capture_output=True, text=True, check=True).stdout
    version = re.match(r"go1\.(\d+)", shown)
    can_fetch = "local" not in shown
    if version is None or int(version[1]) < (GO_THAT_FETCHES if can_fetch else GO_OF_FRANZ_GO):
        pytest.skip(f"franz-go has share groups since a release that needs Go 1.{GO_OF_FRANZ_GO}")
    return go_program(SOURCE.with_name("go_share_members"), "go-share-members")


@dataclass(frozen=True, slots=True)
class Program:
    """Members of one client, which run in one process."""

    command: Sequence[str]  # without its arguments
    members: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)  # of this client alone


class ShareMembers(Worker):
    """Runs programs whose members are numbered in their order; `stop` returns when the members have left."""

    def __init__(
        self,
        programs: Sequence[Program],
        settings: Mapping[str, str],
        topic: str,
        deliveries: Deliveries,
        *,
        releases: int = 0,
        rejects: int = 0,
    ) -> None:
        """Of `releases` offsets one is released at its first delivery, of `rejects` one is rejected; 0: none."""
        super().__init__("share-members")
        self._deliveries = deliveries
        self._is_leaving = threading.Event()
        self._output, writer = os.pipe()
        self._children = []
        first = 0
        for program in programs:
            pairs = [f"{key}={value}" for key, value in {**settings, **program.settings}.items()]
            numbers = (first, program.members, releases, rejects)
            command = tied_to_parent([*program.command, topic, *map(str, numbers), *pairs])
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.DEVNULL)
            self._children.append(child)
            first += program.members
        os.close(writer)
        self._rest = b""  # owner: its thread; the beginning of a line

    def __exit__(self, failure: type[BaseException] | None = None, *_: object) -> None:
        """Let the members leave, within a timeout; after a failure, end the programs at once."""
        self._is_leaving.set()
        for child in self._children:
            assert child.stdin is not None
            child.stdin.close()
        if failure is None:
            self._thread.join(LEAVE_TIMEOUT_S)
        for child in self._children:
            child.kill()
        self._thread.join()

    def _turn(self) -> None:
        if not select.select([self._output], [], [], LOOK_S)[0]:
            if not self._is_leaving.is_set():
                codes = [child.poll() for child in self._children]
                assert codes == [None] * len(codes), f"members have ended: {codes}"
            return
        heard = os.read(self._output, READ_BYTES)
        if heard:
            *lines, self._rest = (self._rest + heard).split(b"\n")
            for line in lines:
                self._deliveries.add(line.decode())
            return
        self._stopping.set()
        codes = [child.wait() for child in self._children]
        assert codes == [0] * len(codes), f"the members ended with {codes}"

    def _close(self) -> None:
        for child in self._children:
            child.kill()
            with child:
                pass  # its pipes are closed
        os.close(self._output)
