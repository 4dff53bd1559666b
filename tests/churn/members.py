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
    """The configuration of a group's members."""

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
    """A running member, and the thread that reads its output."""

    def __init__(self, group: Group, client: Mapping[str, Any], name: str) -> None:
        """`client` has the settings with which it connects."""
        self.name = name
        self.owned: frozenset[int] = frozenset()  # replaced whole by the reading thread
        self.is_paused = False
        self._group = group
        config = {
            **client, "group.id": group.name, "client.id": name, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", **RECONNECT, **group.kind.config,
        }  # fmt: skip
        if group.kind.is_classic:
            config |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        if group.kind.is_static:
            config["group.instance.id"] = name
        given = {"topic": TOPIC, "cooperative": group.kind.is_cooperative, "config": config}
        command = tied_to_parent([sys.executable, str(MEMBER), json.dumps(given)])
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        # A static member's successor owns the same partitions in the same generation: they count as one member.
        self._identity = name if group.kind.is_static else f"{name} (pid {self.child.pid})"
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.child.send_signal(number)

    def end(self, number: signal.Signals) -> None:
        """End the process, and wait until it has ended and all its output was read."""
        if self.is_paused and number is not signal.SIGKILL:
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
        with self.child.stdout as output:
            for line in output:
                self._handle(json.loads(line))

    def _handle(self, event: dict[str, Any]) -> None:
        if event["event"] == "owns":
            self.owned = frozenset(event["partitions"])
            self._group.claimed(self._identity, event["generation"], self.owned)
        elif event["event"] == "committed":
            self._group.confirmed({int(p): offset for p, offset in event["offsets"].items()})


@dataclass(slots=True)
class Group:
    """A group, its members, and its history."""

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
        """See GroupHistory.claimed."""
        with self._lock:
            self.history.claimed("the members", member, generation, partitions)

    def confirmed(self, offsets: Mapping[int, int]) -> None:
        """See GroupHistory.offset_confirmed."""
        with self._lock:
            for partition, offset in offsets.items():
                self.history.offset_confirmed(partition, offset)

    def known(self) -> dict[int, int]:
        """The offsets that were reported or confirmed so far."""
        with self._lock:
            return dict(self.history.reported)

    def reported(self, since: Mapping[int, int], offsets: Mapping[int, int]) -> None:
        """The response to a request that was sent when `since` was known; later commits may be missing in it."""
        with self._lock:
            current = dict(self.history.reported)
            self.history.reported = dict(since)
            for partition, offset in offsets.items():
                self.history.offset_reported(partition, offset)
            for partition, offset in current.items():
                self.history.reported[partition] = max(offset, self.history.reported.get(partition, -1))
