"""Members of a streams group that move to changing targets, at random; the reconciliation's properties are checked."""

from __future__ import annotations

import random
from typing import NamedTuple

from barnabas.broker.coordinators.streams_groups.owners import TaskOwners
from barnabas.broker.coordinators.streams_groups.reconcile import Aim, reconcile
from barnabas.broker.coordinators.streams_groups.values import Member, TaskId, Tasks

ROLES = ("active", "standby", "warmup")


class Step(NamedTuple):
    """A step of a member: the members before it, what it aims at, and the member after it."""

    members: dict[str, Member]
    member_id: str
    aim: Aim
    after: Member


class Walk:
    """Members that move to changing targets, report late, and revoke when they want."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.epoch = 1
        self.members = {f"m{i}": Member(f"m{i}", process_id=f"p{i % 3}") for i in range(5)}
        self.targets = dict.fromkeys(self.members, Tasks())
        self.held = dict.fromkeys(self.members, Tasks())  # what the members themselves have
        self.steps: list[Step] = []

    def new_target(self) -> None:
        """A target as an assignor makes it: one active owner, standbys in other processes."""
        self.epoch += 1
        parts: dict[str, dict[str, dict[str, set[int]]]] = {name: {role: {} for role in ROLES} for name in self.members}
        for task in (TaskId(id_, partition) for id_ in "01" for partition in range(3)):
            names = self.rng.sample(list(self.members), 5)
            processes: set[str] = set()
            for role, name in zip(ROLES, names, strict=False):
                if self.members[name].process_id not in processes and self.rng.random() < 0.8:
                    processes.add(self.members[name].process_id)
                    parts[name][role].setdefault(task.subtopology_id, set()).add(task.partition)
        self.targets = {
            name: Tasks(**{
                role: {id_: frozenset(found) for id_, found in by_id.items()} for role, by_id in roles.items()
            })
            for name, roles in parts.items()
        }  # fmt: skip

    def heartbeat(self, name: str, *, reports: bool) -> None:
        before = self.members[name]
        reported = self.held[name] if reports else None
        aim = Aim(self.epoch, self.targets[name], TaskOwners.of(self.members.values()), reported)
        after = reconcile(before, aim)
        assert before.epoch <= after.epoch <= self.epoch
        self.steps.append(Step(dict(self.members), name, aim, after))
        self.members[name] = after

    def obey(self, name: str) -> None:
        """The member takes and drops what it was told."""
        self.held[name] = self.members[name].assigned.without_epochs()

    def check(self) -> None:
        seen: dict[TaskId, set[str]] = {}
        in_process: set[tuple[str, TaskId]] = set()
        for found in self.members.values():
            for part in (found.assigned.without_epochs(), found.pending_revocation.without_epochs()):
                for role in ROLES:
                    for id_, partitions in getattr(part, role).items():
                        for task in (TaskId(id_, partition) for partition in partitions):
                            if role == "active":
                                seen.setdefault(task, set()).add(found.member_id)
                            assert (found.process_id, task) not in in_process, "a process has it twice"
                            in_process.add((found.process_id, task))
        assert all(len(names) == 1 for names in seen.values()), "two members process it"
        for name, held in self.held.items():
            known = self.members[name]
            for id_, partitions in held.active.items():
                for partition in partitions:
                    assert known.assignment_epoch(TaskId(id_, partition)) is not None, "the group forgot an owner"

    def run(self, steps: int) -> None:
        """Let the members do random things."""
        for _ in range(steps):
            name = self.rng.choice(list(self.members))
            match self.rng.randrange(8):
                case 0:
                    self.new_target()
                case 1 | 2:
                    self.obey(name)
                case _:
                    self.heartbeat(name, reports=self.rng.random() < 0.7)
            self.check()
