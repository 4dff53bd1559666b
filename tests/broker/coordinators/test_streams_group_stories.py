"""The stories of streams groups (KIP-1071), as readable transcripts: `streams_stories/*.txt`.

A story lists what members do, and when time passes. Each event is followed by the answers, and by the group if it
changed: its state and epochs, each member's epoch, active tasks, standby tasks (s0) and tasks that it has yet to revoke
(-0). The application has one subtopology, which reads topic t and keeps its state in topic c.
`WRITE_TRANSCRIPTS=1 pytest ...` rewrites the files; a change is reviewed as a diff.

Events
    join NAME [PROCESS]        the first heartbeat, by default of a process of its own
    beat NAME                  a heartbeat with the tasks that the member was told to have
    keep NAME                  a heartbeat with the tasks that it had before it was told the last time
    lose NAME                  as beat; the answer is lost
    leave NAME | stop NAME     it leaves; it asks that the whole application stops
    topic NAME COUNT           a topic has so many partitions now (0: it is deleted)
    set KEY VALUE              a setting of the group, without `streams.`
    wait MS
    delete-group
    writes hang | writes pass | writes fail
    moves | loads              the coordinator moves away; it returns and loads the log
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.values import Heartbeat, HeartbeatResult, Member, Partitions, Tasks
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology

STORIES = sorted((Path(__file__).parent / "streams_stories").glob("*.txt"))
GROUP = "g"
TOPOLOGY = topology(subtopology("0", "t", changelogs="c"))
NO_TASKS = Tasks()


@dataclass(slots=True)
class Client:
    """What one thread of the application knows of its membership."""

    name: str
    process: str
    epoch: int = 0
    has: Tasks = NO_TASKS
    told: Tasks = NO_TASKS


class Stage:
    """Carries out one event after another."""

    def __init__(self) -> None:
        self.world = World(streams_heartbeat_interval_ms=1000)
        self.topics = {"t": 3, "c": 3, "__consumer_offsets": 2}
        self.world.cache.snapshot = snapshot(self.topics)
        self.clients: dict[str, Client] = {}
        self.output: list[str] = []
        self.known = ""

    def play(self, event: str) -> list[str]:
        """Return the output after the event."""
        self.output = []
        name, *arguments = event.split()
        getattr(self, f"_{name.replace('-', '_')}")(*arguments)
        self.world.coordinator.run_pending_jobs()
        before, self.known = self.known, self._knowledge()
        return [*self.output, *([] if self.known == before else [self.known])]

    # Members

    def _join(self, name: str, process: str = "") -> None:
        client = self.clients[name] = Client(name, process or name.lower())
        self._send(client, topology=TOPOLOGY, rebalance_timeout_ms=30_000, process_id=client.process)

    def _beat(self, name: str, **fields: Any) -> None:
        client = self.clients[name]
        client.has = client.told
        self._send(client, **fields)

    def _keep(self, name: str) -> None:
        self._send(self.clients[name])

    def _lose(self, name: str) -> None:
        self._beat(name, is_lost=True)

    def _leave(self, name: str) -> None:
        client = self.clients[name]
        client.epoch = -1
        self._send(client)

    def _stop(self, name: str) -> None:
        self._beat(name, shuts_down=True)

    def _send(self, client: Client, *, is_lost: bool = False, **fields: Any) -> None:
        owned = client.has if client.epoch >= 0 else None
        request = Heartbeat(client.name, client.epoch, owned=owned, client_id="c", client_host="/h", **fields)
        reply = (lambda _answer: None) if is_lost else (lambda answer: self._answered(client, answer))
        try:
            shard = self.world.coordinator.shard_of(GROUP)
        except ApiError as refusal:
            reply(refusal)
        else:
            shard.streams_heartbeat(GROUP, request, reply)

    def _answered(self, client: Client, answer: HeartbeatResult | ApiError) -> None:
        if isinstance(answer, ApiError):
            self.output.append(f"{client.name} gets {answer.code.name}")
            return
        client.epoch = answer.epoch
        if answer.tasks is not None:
            client.told = answer.tasks
        has = "" if answer.tasks is None else f": {_shown(answer.tasks)}"
        told = "".join(f", {status.code.name}" for status in answer.statuses)
        self.output.append(f"{client.name} is in epoch {answer.epoch}{has}{told}")

    # What else happens

    def _delete_group(self) -> None:
        self.world.coordinator.delete_groups([GROUP], lambda errors: self.output.append(errors[GROUP].name))

    def _topic(self, name: str, count: str) -> None:
        self.topics[name] = int(count)
        self.world.cache.snapshot = snapshot({name: count for name, count in self.topics.items() if count})

    def _set(self, key: str, value: str) -> None:
        setattr(self.world.config, f"streams_{key.replace('.', '_')}", int(value))

    def _wait(self, ms: str) -> None:
        self.world.advance_ms(int(ms))

    def _writes(self, how: str) -> None:
        replicas = self.world.replicas
        replicas.holds = how == "hang"
        replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS if how == "fail" else ErrorCode.NONE
        if how == "pass":
            replicas.release()

    def _moves(self) -> None:
        for partition in (0, 1):
            self.world.coordinator.on_resignation(self.world.tp(partition), None)

    def _loads(self) -> None:
        for partition in (0, 1):
            self.world.lead(partition, 2)

    # Output

    def _knowledge(self) -> str:
        try:
            return self.world.coordinator.shard_of(GROUP).describe_streams_group(GROUP, _line)
        except ApiError as error:
            return error.code.name


def _line(group: StreamsGroup) -> str:
    group.invariants()
    parts = [f"{group.state.value} {group.epoch}/{group.assignment_epoch}"]
    return "   ".join([*parts, *(_member(member) for member in group.members.values())])


def _member(member: Member) -> str:
    revoked = member.pending_revocation.without_epochs()
    lost = [*_numbers(revoked.active, "-"), *_numbers(revoked.standby, "-s")]
    return f"{member.member_id} {member.epoch}: {' '.join([_shown(member.assigned.without_epochs()), *lost])}"


def _shown(tasks: Tasks) -> str:
    return " ".join([*_numbers(tasks.active), *_numbers(tasks.standby, "s")]) or "nothing"


def _numbers(tasks: Partitions, prefix: str = "") -> list[str]:
    return [f"{prefix}{partition}" for partition in sorted(tasks.get("0", ()))]


def perform(text: str) -> str:
    """The transcript of a story, whose old answers are dropped."""
    stage = Stage()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [f"    {answer}" for answer in stage.play(line)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    performed = perform(path.read_text())
    if os.environ.get("WRITE_TRANSCRIPTS"):
        path.write_text(performed)
    assert performed == path.read_text()


def test_there_are_stories() -> None:
    assert len(STORIES) >= 8
