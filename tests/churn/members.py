"""The groups of a run and their members, each a process that can be killed (`member.py`)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.churn.history import GroupHistory
from tests.support.history import RECONNECT
from tests.support.processes import tied_to_parent

TOPIC = "churned"
PARTITIONS = 6
SESSION_MS = 6_000
MEMBER = Path(__file__).with_name("member.py")


@dataclass(frozen=True, slots=True)
class Kind:
    """How the members of a group are configured."""

    name: str
    config: Mapping[str, Any]
    is_cooperative: bool = False
    is_static: bool = False
    is_classic: bool = True  # else the members speak the consumer protocol (KIP-848)


KINDS = (
    Kind("eager", {"partition.assignment.strategy": "range"}),
    Kind("cooperative", {"partition.assignment.strategy": "cooperative-sticky"}, is_cooperative=True),
    Kind("static", {"partition.assignment.strategy": "roundrobin"}, is_static=True),
    Kind("consumer", {"group.protocol": "consumer"}, is_cooperative=True, is_classic=False),
)


class MemberProcess:
    """A member that runs, and the thread that reads what it prints."""

    def __init__(self, group: Group, bootstrap: str, name: str) -> None:
        self.name = name
        self.owned: frozenset[int] = frozenset()  # replaced whole by the reading thread
        self.is_still = False
        self._group = group
        config = {
            "bootstrap.servers": bootstrap, "group.id": group.name, "client.id": name, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", **RECONNECT, **group.kind.config,
        }  # fmt: skip
        if group.kind.is_classic:
            config |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        if group.kind.is_static:
            config["group.instance.id"] = name
        given = {"topic": TOPIC, "cooperative": group.kind.is_cooperative, "config": config}
        command = tied_to_parent([sys.executable, str(MEMBER), json.dumps(given)])
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        # A static member's successor owns, in the same generation, what it owned: they are one member.
        self._identity = name if group.kind.is_static else f"{name} (pid {self.child.pid})"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.child.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """End the process and wait until it is gone and all it said is heard."""
        if self.is_still and number is not signal.SIGKILL:
            self.signal(signal.SIGCONT)
        self.signal(number)
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self._thread.join()

    def _listen(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as told:
            for line in told:
                self._hear(json.loads(line))

    def _hear(self, said: dict[str, Any]) -> None:
        if said["event"] == "owns":
            self.owned = frozenset(said["partitions"])
            self._group.claimed(self._identity, said["generation"], self.owned)
        elif said["event"] == "committed":
            self._group.confirmed({int(p): offset for p, offset in said["offsets"].items()})


@dataclass(slots=True)
class Group:
    """A group, its members, and what is known of it."""

    kind: Kind
    history: GroupHistory
    members: dict[str, MemberProcess] = field(default_factory=dict)
    names: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards the history

    @property
    def name(self) -> str:
        """The group id."""
        return self.history.group

    def claimed(self, member: str, generation: int, partitions: frozenset[int]) -> None:
        """See the history."""
        with self._lock:
            self.history.claimed("the members", member, generation, partitions)

    def confirmed(self, offsets: Mapping[int, int]) -> None:
        """See the history."""
        with self._lock:
            for partition, offset in offsets.items():
                self.history.offset_confirmed(partition, offset)

    def known(self) -> dict[int, int]:
        """What was told or confirmed so far."""
        with self._lock:
            return dict(self.history.told)

    def told(self, since: Mapping[int, int], offsets: Mapping[int, int]) -> None:
        """An answer to a question that was asked when `since` was known: what came up meanwhile may be missing."""
        with self._lock:
            current = dict(self.history.told)
            self.history.told = dict(since)
            for partition, offset in offsets.items():
                self.history.offset_told(partition, offset)
            for partition, offset in current.items():
                self.history.told[partition] = max(offset, self.history.told.get(partition, -1))
