"""The stories of share groups (KIP-932), as readable transcripts: `share_stories/*.txt`.

A story lists what clients do, and when time passes. Each event is followed by the answers, and by the coordinator's
state if it changed: the group's state and epochs, each member's epoch and partitions, and the share partitions that are
being initialised (+t0), initialised (t0), or being deleted (-t). A line `kept` has what the share coordinators have of
each partition: its epoch and its start offset.
`WRITE_TRANSCRIPTS=1 pytest ...` rewrites the files; a change is reviewed as a diff.

Events
    join NAME [TOPICS]         the first heartbeat, which names the topics
    beat NAME                  a heartbeat
    lose NAME                  a heartbeat whose answer is lost
    change NAME TOPICS
    leave NAME
    alter TOPIC PARTITION OFFSET | delete-offsets TOPIC | delete-group
    topic NAME COUNT           a topic has so many partitions now (0: it is deleted)
    wait MS
    writes hang | writes pass | writes fail
    shares hang | shares pass | shares fail     the share coordinators
    moves | loads              the coordinator moves away; it returns and loads the log
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.state_changes import TopicOutcome
from barnabas.broker.coordinators.share_groups.values import Heartbeat, HeartbeatResult, TopicParts
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot

STORIES = sorted((Path(__file__).parent / "share_stories").glob("*.txt"))
GROUP = "g"


@dataclass(slots=True)
class Client:
    """What one process knows of its membership."""

    name: str
    epoch: int = 0
    topics: frozenset[str] = frozenset("t")


class Stage:
    """Carries out one event after another."""

    def __init__(self) -> None:
        self.world = World()
        self.topics = {"t": 3, "__consumer_offsets": 2}
        self.world.cache.snapshot = snapshot(self.topics)
        self.clients: dict[str, Client] = {}
        self.output: list[str] = []
        self.known: dict[str, str] = {}

    def play(self, event: str) -> list[str]:
        """Return the output after the event."""
        self.output = []
        name, *arguments = event.split()
        getattr(self, f"_{name.replace('-', '_')}")(*arguments)
        self.world.coordinator.run_pending_jobs()
        before, self.known = self.known, {"group": self._knowledge(), "kept": self._kept()}
        return [*self.output, *(line for key, line in self.known.items() if before.get(key, "") != line)]

    # Members

    def _join(self, name: str, topics: str = "t") -> None:
        client = self.clients.setdefault(name, Client(name))
        client.epoch, client.topics = 0, frozenset(topics.split(","))
        self._send(client, is_whole=True)

    def _change(self, name: str, topics: str) -> None:
        client = self.clients[name]
        client.topics = frozenset(topics.split(","))
        self._send(client, is_whole=True)

    def _beat(self, name: str) -> None:
        self._send(self.clients[name])

    def _lose(self, name: str) -> None:
        self._send(self.clients[name], is_lost=True)

    def _leave(self, name: str) -> None:
        client = self.clients[name]
        client.epoch = -1
        self._send(client)

    def _send(self, client: Client, *, is_whole: bool = False, is_lost: bool = False) -> None:
        request = Heartbeat(client.name, client.epoch, topic_names=client.topics if is_whole else None)
        reply = (lambda _answer: None) if is_lost else (lambda answer: self._answered(client, answer))
        try:
            shard = self.world.coordinator.shard_of(GROUP)
        except ApiError as refusal:
            reply(refusal)
        else:
            shard.share_heartbeat(GROUP, request, reply)

    def _answered(self, client: Client, answer: HeartbeatResult | ApiError) -> None:
        if isinstance(answer, ApiError):
            self.output.append(f"{client.name} gets {answer.code.name}")
            return
        client.epoch = answer.epoch
        has = "" if answer.assigned is None else f": {_shown(answer.assigned) or 'nothing'}"
        self.output.append(f"{client.name} is in epoch {answer.epoch}{has}")

    # Administrators

    def _alter(self, topic: str, partition: str, offset: str) -> None:
        wanted = {topic: {int(partition): int(offset)}}
        self._ask(lambda shares: shares.changes.alter_offsets(GROUP, wanted, self._changed), self._changed)

    def _delete_offsets(self, topic: str) -> None:
        self._ask(lambda shares: shares.changes.delete_offsets(GROUP, [topic], self._changed), self._changed)

    def _changed(self, outcome: Sequence[TopicOutcome] | ApiError) -> None:
        if isinstance(outcome, ApiError):
            self.output.append(outcome.code.name)
            return
        self.output += [(topic.error or next(iter(topic.errors.values()), ErrorCode.NONE)).name for topic in outcome]

    def _delete_group(self) -> None:
        self.world.coordinator.delete_groups([GROUP], lambda errors: self.output.append(errors[GROUP].name))

    def _ask(self, change: Any, reply: Any) -> None:
        try:
            shard = self.world.coordinator.shard_of(GROUP)
        except ApiError as refusal:
            reply(refusal)
        else:
            shard.change_shares(change, lambda error: reply(ApiError(error)))

    # What else happens

    def _topic(self, name: str, count: str) -> None:
        former = self.world.cache.snapshot.topic_id(name)
        self.topics[name] = int(count)
        self.world.cache.snapshot = snapshot({name: count for name, count in self.topics.items() if count})
        if not int(count):
            self.world.coordinator.on_metadata_update({name: former})

    def _wait(self, ms: str) -> None:
        self.world.advance_ms(int(ms))

    def _writes(self, how: str) -> None:
        replicas = self.world.replicas
        replicas.holds = how == "hang"
        replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS if how == "fail" else ErrorCode.NONE
        if how == "pass":
            replicas.release()

    def _shares(self, how: str) -> None:
        persister = self.world.persister
        persister.holds = how == "hang"
        away = dict.fromkeys(range(9), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        persister.refuses = away if how == "fail" else {}
        if how == "pass":
            persister.release()

    def _moves(self) -> None:
        for partition in (0, 1):
            self.world.coordinator.on_resignation(self.world.tp(partition), None)

    def _loads(self) -> None:
        for partition in (0, 1):
            self.world.lead(partition, 2)

    # Output

    def _knowledge(self) -> str:
        try:
            return self.world.coordinator.shard_of(GROUP).describe_share_group(GROUP, self._line)
        except ApiError as error:
            return error.code.name

    def _line(self, group: ShareGroup) -> str:
        group.invariants()
        parts = [f"{group.state.value} {group.epoch}/{group.assignment_epoch}"]
        parts += [f"{m.member_id} {m.epoch}: {_shown(m.assigned) or 'nothing'}" for m in group.members.values()]
        known = group.partitions
        shares = [f"+{tp}" for tp in _partitions(known.initializing)] + _partitions(known.initialized)
        shares += [f"-{name}" for name in sorted(known.deleting.values())]
        return "   ".join([*parts, f"({' '.join(shares) or 'none'})"])

    def _kept(self) -> str:
        kept = sorted(
            (f"{key.topic_id[:1].decode()}{key.partition}", state) for key, state in self.world.persister.states.items()
        )
        return f"kept {' '.join(f'{tp}@{epoch}:{start}' for tp, (epoch, start) in kept) or 'nothing'}"


def _shown(assigned: Mapping[bytes, frozenset[int]]) -> str:
    return " ".join(f"{id_[:1].decode()}{p}" for id_, found in sorted(assigned.items()) for p in sorted(found))


def _partitions(parts: TopicParts) -> list[str]:
    return [f"{name}{p}" for name, found in sorted(parts.values()) for p in sorted(found)]


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
    assert len(STORIES) >= 5
