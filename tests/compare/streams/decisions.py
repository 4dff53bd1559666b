"""Decisions about streams groups that Apache Kafka's own classes made, for the same cases as ours.

Three kinds of cases, all made from seeds: the step of a member towards its target, a topology with the topics that
exist, and the sticky assignment. StreamsDecisions.java makes Kafka's decisions, without a broker.

`python -m tests.compare.streams.decisions` records them again; the test needs no Kafka.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from barnabas.broker.coordinators.streams_groups.assignment import sticky
from barnabas.broker.coordinators.streams_groups.topology.configured import configure
from barnabas.broker.coordinators.streams_groups.values import InternalTopic, Member, OwnedTasks, Tasks, Topology
from barnabas.protocol.errors import ApiError
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology
from tests.broker.coordinators.streams_groups.walk import Step, Walk
from tests.support.kafka.kafka_jars import kafka_runtime

SOURCE = Path(__file__).with_name("StreamsDecisions.java")
FILE = Path(__file__).parents[2] / "data" / "apache-kafka-streams-decisions.json.gz"
STEP_SEEDS, STEPS = 8, 120
TOPOLOGIES, GROUPS = 400, 400

Json: TypeAlias = Any


def recorded() -> list[tuple[str, Json]]:
    """Return the cases, as text, with Kafka's decisions."""
    lines = gzip.decompress(FILE.read_bytes()).decode().splitlines()
    return [(case, json.loads(decision)) for case, decision in zip(lines[::2], lines[1::2], strict=True)]


def cases() -> Iterator[tuple[Json, Json]]:
    """Make every case, with our decision."""
    for seed in range(STEP_SEEDS):
        walk = Walk(seed)
        walk.run(STEPS)
        for step in walk.steps:
            yield _step_case(step), _member_after(step.after)
    rng = random.Random(1)
    for _ in range(TOPOLOGIES):
        found, existing = some_topology(rng)
        yield _topology_case(found, existing), _configured(found, existing)
    for _ in range(GROUPS):
        members, subtopologies, replicas = some_group(rng)
        yield (
            _assignment_case(members, subtopologies, replicas),
            {name: _tasks(each)[:2] for name, each in sticky.assign(members, subtopologies, replicas).items()},
        )


# Steps


def _step_case(step: Step) -> Json:
    return {
        "kind": "step",
        "member": step.member_id,
        "members": [
            {"id": each.member_id, "process": each.process_id, **_member_after(each)} for each in step.members.values()
        ],
        "target_epoch": step.aim.target_epoch,
        "target": _tasks(step.aim.target),
        "reported": None if step.aim.reported is None else _tasks(step.aim.reported),
    }


def _member_after(member: Member) -> Json:
    return {
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state.value,
        "assigned": _owned(member.assigned),
        "pending": _owned(member.pending_revocation),
    }


def _owned(tasks: OwnedTasks) -> Json:
    active = {id_: {str(p): epoch for p, epoch in sorted(found.items())} for id_, found in sorted(tasks.active.items())}
    return [active, _partitions(tasks.standby), _partitions(tasks.warmup)]


def _tasks(tasks: Tasks) -> Json:
    return [_partitions(tasks.active), _partitions(tasks.standby), _partitions(tasks.warmup)]


def _partitions(found: Mapping[str, Iterable[int]]) -> Json:
    return {id_: sorted(partitions) for id_, partitions in sorted(found.items())}


# Topologies


def some_topology(rng: random.Random) -> tuple[Topology, dict[str, int]]:
    """Make a topology of up to five subtopologies, mostly a chain, and the topics that exist."""
    made = []
    for id_ in range(rng.randint(1, 5)):
        sources = [name for name in "abc" if rng.random() < 0.35] or (["a"] if id_ == 0 or rng.random() < 0.3 else [])
        reads = [f"r{i}" for i in range(id_) if rng.random() < 0.5]
        fixed = {name: rng.choice((0, 0, 0, 2, 4)) for name in reads}
        names = sources + reads
        together = rng.sample(names, min(len(names), 2)) if rng.random() < 0.4 else []
        made.append(
            subtopology(
                str(id_), " ".join(sources), reads=[InternalTopic(name, count) for name, count in fixed.items()],
                writes=f"r{id_}", changelogs=f"c{id_}" if rng.random() < 0.5 else "",
                together=[" ".join(together)] if together else [],
            )
        )  # fmt: skip
    existing = {name: rng.choice((2, 4)) for name in "abc" if rng.random() < 0.95}
    existing |= {f"{kind}{i}": rng.choice((2, 4)) for kind in "rc" for i in range(5) if rng.random() < 0.3}
    return topology(*made), existing


def _topology_case(found: Topology, existing: Mapping[str, int]) -> Json:
    return {
        "kind": "configure",
        "subtopologies": [
            {
                "id": each.subtopology_id,
                "sources": each.source_topics,
                "writes": each.repartition_sinks,
                "reads": [[topic.name, topic.partitions] for topic in each.repartition_sources],
                "changelogs": [[topic.name, topic.partitions] for topic in each.changelogs],
                "together": [[group.source_topics, group.repartition_sources] for group in each.copartition_groups],
            }
            for each in found.subtopologies.values()
        ],
        "existing": existing,
    }


def _configured(found: Topology, existing: dict[str, int]) -> Json:
    try:
        made = configure(found, existing.get)
    except ApiError as error:
        return {"error": error.code.name}
    decision: dict[str, Any] = {
        "tasks": {id_: each.number_of_tasks for id_, each in made.subtopologies.items()},
        "missing": {topic.name: topic.partitions for topic in made.missing},
    }
    if made.problem is not None:
        decision |= {"status": made.problem.code.value, "detail": made.problem.detail}
    return decision


# Assignments


def some_group(
    rng: random.Random,
) -> tuple[dict[str, sticky.MemberSpec], dict[str, sticky.SubtopologySpec], int]:
    """Make a group whose members come and go: its members, with the tasks that they had, subtopologies and replicas."""
    subtopologies = {
        str(id_): sticky.SubtopologySpec(rng.randint(1, 8), rng.random() < 0.6) for id_ in range(rng.randint(1, 3))
    }
    replicas = rng.randint(0, 2)
    processes = rng.randint(1, 4)
    members = {f"m{i}": sticky.MemberSpec(f"p{i % processes}", Tasks()) for i in range(rng.randint(1, 8))}
    for _ in range(rng.randint(0, 3)):
        found = sticky.assign(members, subtopologies, replicas)
        members = {name: sticky.MemberSpec(each.process_id, found[name]) for name, each in members.items()}
        for name in rng.sample(list(members), rng.randint(0, len(members) - 1)):
            del members[name]
        for i in rng.sample(range(9), rng.randint(0, 3)):
            members.setdefault(f"m{i}", sticky.MemberSpec(f"p{rng.randrange(processes)}", Tasks()))
    return members, subtopologies, replicas


def _assignment_case(
    members: Mapping[str, sticky.MemberSpec], subtopologies: Mapping[str, sticky.SubtopologySpec], replicas: int
) -> Json:
    return {
        "kind": "assign",
        "members": {name: [each.process_id, _tasks(each.previous)] for name, each in members.items()},
        "subtopologies": subtopologies,
        "replicas": replicas,
    }


def main() -> None:
    """Record Apache Kafka's decisions."""
    runtime = kafka_runtime()
    made = [json.dumps(case) for case, _ in cases()]
    command = runtime.command("StreamsDecisions", classes=runtime.compiled(SOURCE))
    answers = subprocess.run(command, input="\n".join(made), capture_output=True, text=True, check=True).stdout
    pairs = zip(made, answers.splitlines(), strict=True)
    text = "".join(f"{case}\n{answer}\n" for case, answer in pairs)
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
