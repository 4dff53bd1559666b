"""The stories of consumer groups (KIP-848), as readable transcripts: `consumer_stories/*.txt`.

A story lists what clients do, and when time passes. Each event is followed by the answers, and by the coordinator's
state if it changed: the group's state and epochs, and for each member its epoch, its partitions, and (-t0) those it has
yet to revoke. A coordinator over a log in memory carries the events out.
`WRITE_TRANSCRIPTS=1 pytest ...` rewrites the files; a change is reviewed as a diff.

Events
    join NAME [reads TOPICS] [matches REGEX] [static ID] [by ASSIGNOR] [revokes-within MS]
    beat NAME             a heartbeat: it reports what it owns, and does not apply the answer yet
    obey NAME             it applies its assignment, and reports that in a heartbeat
    lose NAME             the same, and the answer is lost
    change NAME [reads TOPICS] [matches REGEX]
    leave NAME [for-a-while]
    commit NAME [in EPOCH]         OffsetCommit of partition t0
    classic NAME          JoinGroup, by the classic protocol (eager, range), then SyncGroup; again if required
    ping NAME             Heartbeat of the classic protocol
    quit NAME             LeaveGroup
    topic NAME COUNT      a topic has so many partitions now (0: it is deleted)
    wait MS
    writes hang | writes pass | writes fail
    moves | loads         the coordinator moves away; it returns and loads the log
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.consumer_protocol import read_assignment, write_assignment
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import Heartbeat, HeartbeatResult, Owned, partitions_of
from barnabas.broker.coordinators.groups.group_offsets import Committer, OffsetCommit
from barnabas.broker.coordinators.offsets.store import CommittedOffset
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot

STORIES = sorted((Path(__file__).parent / "consumer_stories").glob("*.txt"))
GROUP = "g"


@dataclass(slots=True)
class Client:
    """What one process knows of its membership."""

    name: str
    epoch: int = 0
    instance_id: str | None = None
    topics: frozenset[str] | None = frozenset("t")
    regex: str | None = None
    assignor: str | None = None
    rebalance_ms: int = 60_000
    assigned: set[tuple[bytes, int]] = field(default_factory=set)
    owned: set[tuple[bytes, int]] = field(default_factory=set)
    member_id: str = ""  # of the classic protocol
    generation_id: int = -1


class Stage:
    """Carries out one event after another."""

    def __init__(self) -> None:
        self.world = World(consumer_assignment_interval_ms=0)
        self.topics = {"t": 4, "__consumer_offsets": 2}
        self.world.cache.snapshot = snapshot(self.topics)
        self.clients: dict[str, Client] = {}
        self.output: list[str] = []
        self.known = ""

    def play(self, event: str) -> list[str]:
        """Return the output after the event."""
        self.output = []
        name, *arguments = event.split()
        getattr(self, f"_{name}")(*arguments)
        self.world.coordinator.run_pending_jobs()
        before, self.known = self.known, self._knowledge()
        return [*self.output, self.known] if self.known != before else self.output

    # The consumer protocol

    def _join(self, name: str, *options: str) -> None:
        client = self.clients.setdefault(name, Client(name))
        given = dict(zip(options[::2], options[1::2], strict=True))
        client.instance_id = given.get("static", client.instance_id)
        client.assignor = given.get("by", client.assignor)
        client.rebalance_ms = int(given.get("revokes-within", client.rebalance_ms))
        self._want(client, given)
        client.epoch, client.owned, client.assigned = 0, set(), set()
        self._send(client, is_whole=True)

    def _want(self, client: Client, given: dict[str, str]) -> None:
        if "reads" in given:
            client.topics, client.regex = frozenset(given["reads"].split(",")), ""
        if "matches" in given:
            client.topics, client.regex = frozenset(), given["matches"]

    def _change(self, name: str, *options: str) -> None:
        client = self.clients[name]
        self._want(client, dict(zip(options[::2], options[1::2], strict=True)))
        self._send(client, is_whole=True)

    def _beat(self, name: str) -> None:
        self._send(self.clients[name])

    def _obey(self, name: str) -> None:
        client = self.clients[name]
        client.owned = set(client.assigned)
        self._send(client)

    def _lose(self, name: str) -> None:
        client = self.clients[name]
        client.owned = set(client.assigned)
        self._send(client, is_lost=True)

    def _leave(self, name: str, how: str = "") -> None:
        client = self.clients[name]
        client.epoch = -2 if how else -1
        self._send(client)

    def _send(self, client: Client, *, is_whole: bool = False, is_lost: bool = False) -> None:
        owned: dict[bytes, frozenset[int]] = {}
        for topic_id, partition in client.owned:
            owned[topic_id] = owned.get(topic_id, frozenset()) | {partition}
        wants = {
            "rebalance_timeout_ms": client.rebalance_ms, "topic_names": client.topics, "topic_regex": client.regex,
            "server_assignor": client.assignor,
        }  # fmt: skip
        request = Heartbeat(client.name, client.epoch, client.instance_id, owned=owned, **(wants if is_whole else {}))  # type: ignore[arg-type]
        reply = (lambda _answer: None) if is_lost else (lambda answer: self._answered(client, answer))
        self.world.coordinator.consumer_heartbeat(GROUP, request, reply)

    def _answered(self, client: Client, answer: HeartbeatResult | ApiError) -> None:
        if isinstance(answer, ApiError):
            self.output.append(f"{client.name} gets {answer.code.name}")
            return
        client.epoch = answer.epoch
        if answer.assigned is not None:
            client.assigned = partitions_of(answer.assigned)
        has = "" if answer.assigned is None else f": {self._shown(answer.assigned)}"
        self.output.append(f"{client.name} is in epoch {answer.epoch}{has}")

    def _commit(self, name: str, _in: str = "", epoch: str = "") -> None:
        client = self.clients[name]
        who = Committer(GROUP, client.member_id or name, None, int(epoch or max(client.epoch, client.generation_id)), 9)
        topic_id = self.world.cache.snapshot.topic_id("t")
        what = OffsetCommit("t", 0, CommittedOffset(1, 1, "", self.world.coordinator.now_ms, topic_id=topic_id))
        self.world.coordinator.commit_offsets(who, [what], lambda error: self._committed(name, error))

    def _committed(self, name: str, error: ErrorCode) -> None:
        self.output.append(f"{name} gets {error.name}" if error else f"{name} has committed")

    # The classic protocol

    def _classic(self, name: str) -> None:
        client = self.clients.setdefault(name, Client(name))
        metadata = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
        event = ev.Join(
            client.member_id, f"{name}-1", None, name, "/h", 10_000, 60_000, "consumer", (("range", metadata),), 3,
            None,
            lambda result: self._joined(client, result),
        )  # fmt: skip
        self.world.coordinator.join(GROUP, event)

    def _joined(self, client: Client, result: ev.JoinResult) -> None:
        if result.error:
            if result.error is ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""  # as every client does
            self.output.append(f"{client.name} gets {result.error.name}")
            return
        client.member_id, client.generation_id = result.member_id, result.generation_id
        self.output.append(f"{client.name} is in generation {result.generation_id}")
        ids = [member.member_id for member in result.members]
        count = self.topics["t"]
        shares = {
            member_id: write_assignment({"t": frozenset(range(index, count, len(ids)))}, 1)
            for index, member_id in enumerate(ids)
        }  # fmt: skip
        event = ev.Sync(
            client.member_id,
            None,
            client.generation_id,
            None,
            None,
            shares,
            lambda result: self._synced(client, result),
        )
        self.world.coordinator.sync(GROUP, event)

    def _synced(self, client: Client, result: ev.SyncResult) -> None:
        if result.error:
            self.output.append(f"{client.name} gets {result.error.name}")
        else:
            has = sorted(read_assignment(result.assignment).partitions.get("t", ()))
            self.output.append(f"{client.name} has {' '.join(f't{p}' for p in has) or 'nothing'}")

    def _ping(self, name: str) -> None:
        client = self.clients[name]
        error = self.world.coordinator.heartbeat(GROUP, client.member_id, None, client.generation_id)
        self.output.append(f"{name} gets {error.name}" if error else f"{name} is alive")

    def _quit(self, name: str) -> None:
        leaving = ev.LeavingMember(self.clients[name].member_id)
        self.world.coordinator.leave(GROUP, ev.Leave((leaving,), lambda result: self.output.append(f"{name} has left")))

    # What else happens

    def _topic(self, name: str, count: str) -> None:
        self.topics[name] = int(count)
        self.world.cache.snapshot = snapshot({name: count for name, count in self.topics.items() if count})

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
            return self.world.coordinator.describe_consumer_group(GROUP, self._line)
        except ApiError as error:
            _, line = self.world.coordinator.describe(GROUP, self._classic_line)
            return line if line is not None else error.code.name

    def _line(self, group: ConsumerGroup) -> str:
        group.invariants()
        parts = [f"{group.state.value} {group.epoch}/{group.assignment_epoch}"]
        for member in group.members.values():
            revoking = "".join(f" -{tp}" for tp in self._shown(member.pending_revocation, "").split())
            kind = " (classic)" if member.uses_classic_protocol else ""
            parts.append(f"{member.member_id}{kind} {member.epoch}: {self._shown(member.assigned)}{revoking}")
        return "   ".join(parts)

    def _classic_line(self, group: Group) -> str:
        return f"classic {group.state.value} {group.generation_id}   {' '.join(group.members.by_id)}"

    def _shown(self, owned: Owned, nothing: str = "nothing") -> str:
        found = sorted((topic_id[:1].decode(), partition) for topic_id, partition in partitions_of(owned))
        return " ".join(f"{topic}{partition}" for topic, partition in found) or nothing


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
    assert len(STORIES) >= 9


def test_epochs_are_counted() -> None:
    stage = Stage()
    for event in ("join A", "beat A", "join B", "leave B"):
        stage.play(event)
    assert stage.world.registry.sensor(catalogue.CONSUMER_GROUP_REBALANCE).snapshot(1.0)[0] == 2
