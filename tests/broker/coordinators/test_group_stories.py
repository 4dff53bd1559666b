"""The hard stories of classic groups, as readable transcripts: `stories/*.txt`.

A story lists what clients do, and when time passes. Each event is followed by the answers, and by the coordinator's
state if it changed. A coordinator over a log in memory carries the events out, loading and moving included.
`WRITE_TRANSCRIPTS=1 pytest ...` rewrites the files; a change is reviewed as a diff.

Events (a client's name is its own; the coordinator knows its member id)
    join NAME [static ID] [speaks PROTOCOL,...] [session MS] [rebalance MS]
                                     JoinGroup, with the member id that the client has; if it gets a new one first
                                     (KIP-394), it joins with it at once
    sync NAME [NAME=PARTITIONS ...]  SyncGroup, with the assignment if it leads
    heartbeat NAME | leave NAME
    commit NAME OFFSET [in GENERATION]
                                     OffsetCommit of partition 0, by the member id and generation that the client has
    forget NAME                      the process restarts, without its member id and generation
    wait MS                          time passes
    writes hang | writes pass        replication of __consumer_offsets stands still, and goes on
    moves | loads                    the coordinator moves away; it returns and loads the log
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.groups.group_offsets import Committer, OffsetCommit
from barnabas.broker.coordinators.offsets.store import CommittedOffset, TopicQuery
from barnabas.protocol.errors import ErrorCode
from tests.broker.coordinators.fake_log import World
from tests.broker.coordinators.group_rig import RANGE

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
GROUP = "g"
JOIN_VERSION, COMMIT_VERSION = 9, 9
SUBSCRIPTION = RANGE[0][1]
NO_ID = bytes(16)


@dataclass(slots=True)
class Client:
    """What one process knows of its membership."""

    name: str
    member_id: str = ""
    instance_id: str | None = None
    generation_id: int = -1
    lives: int = 0


class Stage:
    """Carries out one event after another."""

    def __init__(self) -> None:
        self.world = World()
        self.clients: dict[str, Client] = {}
        self.owners: dict[str, str] = {}  # member id -> the name of the client that has it
        self.output: list[str] = []
        self.known = ""

    def play(self, event: str) -> list[str]:
        """Return the output after the event."""
        self.output = []
        name, *arguments = event.split()
        getattr(self, f"_{name}")(*arguments)
        before, self.known = self.known, self._knowledge()
        return [*self.output, self.known] if self.known != before else self.output

    # What clients do

    def _join(self, name: str, *options: str) -> None:
        given = dict(zip(options[::2], options[1::2], strict=True))
        client = self.clients.setdefault(name, Client(name))
        client.instance_id = given.get("static", client.instance_id)
        client.lives += 1
        new_id = f"{name}-{client.lives}"
        self.owners[new_id] = name
        protocols = tuple((protocol, SUBSCRIPTION) for protocol in given.get("speaks", "range").split(","))
        event = ev.Join(
            client.member_id, new_id, client.instance_id, name, "/h", int(given.get("session", 10_000)),
            int(given.get("rebalance", 30_000)), "consumer", protocols, JOIN_VERSION, None,
            lambda result: self._joined(client, options, result),
        )  # fmt: skip
        self.world.coordinator.join(GROUP, event)

    def _joined(self, client: Client, options: tuple[str, ...], result: ev.JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
            self._join(client.name, *options)
        elif result.error:
            self._print(client, f"gets {result.error.name}")
        else:
            client.member_id, client.generation_id = result.member_id, result.generation_id
            members = " ".join(self.owners[member.member_id] for member in result.members)
            role = f"leads {members}" if members else "follows"
            skips = ", and need not assign" if result.skip_assignment else ""
            self._print(client, f"is in generation {result.generation_id}, by {result.protocol_name}: {role}{skips}")

    def _sync(self, name: str, *shares: str) -> None:
        client = self.clients[name]
        pairs = dict(share.split("=") for share in shares)
        assignments = {self.clients[of].member_id: partitions.encode() for of, partitions in pairs.items()}

        def answered(result: ev.SyncResult) -> None:
            self._print(client, f"gets {result.error.name}" if result.error else f"has {_shown(result.assignment)}")

        event = ev.Sync(
            client.member_id, client.instance_id, client.generation_id, None, None, assignments, answered
        )  # fmt: skip
        self.world.coordinator.sync(GROUP, event)

    def _heartbeat(self, name: str) -> None:
        client = self.clients[name]
        error = self.world.coordinator.heartbeat(GROUP, client.member_id, client.instance_id, client.generation_id)
        self._print(client, f"gets {error.name}" if error else "is alive")

    def _leave(self, name: str) -> None:
        client = self.clients[name]

        def answered(result: ev.LeaveResult) -> None:
            error = result.error or result.members[0].error
            self._print(client, f"gets {error.name}" if error else "has left")

        leaving = ev.LeavingMember(client.member_id, client.instance_id)
        self.world.coordinator.leave(GROUP, ev.Leave((leaving,), answered))

    def _commit(self, name: str, offset: str, _in: str = "", generation: str = "") -> None:
        client = self.clients[name]
        generation_id = int(generation) if generation else client.generation_id
        who = Committer(GROUP, client.member_id, client.instance_id, generation_id, COMMIT_VERSION)
        what = OffsetCommit("t", 0, CommittedOffset(int(offset), 1, "", self.world.coordinator.now_ms))

        def answered(error: ErrorCode) -> None:
            self._print(client, f"gets {error.name}" if error else f"has committed {offset}")

        self.world.coordinator.commit_offsets(who, [what], answered)

    def _forget(self, name: str) -> None:
        client = self.clients[name]
        self.owners[client.member_id] = f"former-{name}"
        client.member_id, client.generation_id = "", -1

    # What else happens

    def _wait(self, ms: str) -> None:
        self.world.advance_ms(int(ms))

    def _writes(self, how: str) -> None:
        self.world.replicas.holds = how == "hang"
        if how == "pass":
            self.world.replicas.release()

    def _moves(self) -> None:
        for partition in (0, 1):
            self.world.coordinator.on_resignation(self.world.tp(partition), None)

    def _loads(self) -> None:
        for partition in (0, 1):
            self.world.lead(partition, 2)

    # Output

    def _print(self, client: Client, what: str) -> None:
        self.output.append(f"{client.name} {what}")

    def _knowledge(self) -> str:
        error, line = self.world.coordinator.describe(GROUP, self._line)
        return line if line is not None else error.name

    def _line(self, group: Group) -> str:
        members = group.members
        leader = self._names([members.leader_id] if members.leader_id else [])
        parts = [
            group.state.value, f"generation {group.generation_id}", f"members {self._names(members.by_id)}",
            f"leader {leader}", f"offset {self._offset()}",
        ]  # fmt: skip
        for what, ids in {
            "waiting to join": [m.member_id for m in members.by_id.values() if m.awaiting_join is not None],
            "waiting for an assignment": [m.member_id for m in members.by_id.values() if m.awaiting_sync is not None],
        }.items():
            parts += [f"{what} {self._names(ids)}"] * bool(ids)
        return "   ".join(parts)

    def _names(self, member_ids: Any) -> str:
        return " ".join(self.owners[member_id] for member_id in member_ids) or "none"

    def _offset(self) -> int:
        shard = self.world.coordinator._shards[self.world.coordinator.partition_for(GROUP)]
        (topic,) = shard.offsets.fetch(GROUP, [TopicQuery(NO_ID, "t", [0])], require_stable=False)
        return topic.partitions[0].offset


def _shown(assignment: bytes) -> str:
    return assignment.decode() or "nothing"


def lines_of(written: str, play: Callable[[str], list[str]]) -> Iterator[str]:
    """The transcript as it happens: events and comments as in the file, and the output after each event."""
    for line in written.splitlines():
        if line.startswith("    "):
            continue
        yield line
        if line and not line.startswith("#"):
            yield from map("    {}".format, play(line))


@pytest.mark.parametrize("transcript", STORIES, ids=lambda path: path.stem)
def test_the_story_matches_its_transcript(transcript: Path) -> None:
    written = transcript.read_text()
    stage = Stage()
    happened = "\n".join(lines_of(written, stage.play)) + "\n"
    stage.world.coordinator.shutdown()
    if "WRITE_TRANSCRIPTS" in os.environ:
        transcript.write_text(happened)
    assert happened == written


def test_every_story_is_there() -> None:
    assert [path.stem for path in STORIES] == [
        "commit_from_an_old_generation", "cooperative_two_step", "coordinator_moves_in_mid_join",
        "leader_dies_in_completing_rebalance", "static_member_returns_twice", "zombie_member",
    ]  # fmt: skip
