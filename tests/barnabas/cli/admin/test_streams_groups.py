"""`barnabas group` and `barnabas explain group` on streams groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from barnabas.cli.admin.streams_groups import rows, title
from barnabas.client.connection import NodeConnection
from barnabas.protocol.messages import k89_streams_group_describe as described
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k88_streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from tests.barnabas.cli.conftest import Barnabas
from tests.support.waiting import eventually


def assignment(active: Any = (), standby: Any = (), warmup: Any = ()) -> described.Assignment:
    def tasks(partitions: Any) -> list[described.TaskIds]:
        return [described.TaskIds(subtopology_id="0", partitions=list(partitions))] if partitions else []

    return described.Assignment(active_tasks=tasks(active), standby_tasks=tasks(standby), warmup_tasks=tasks(warmup))


def member(name: str, has: described.Assignment, gets: described.Assignment) -> described.Member:
    return described.Member(
        member_id=name, member_epoch=4, client_host="/h", process_id=f"p{name}", assignment=has, target_assignment=gets
    )


def group(*members: described.Member, **fields: Any) -> described.DescribedGroup:
    reads = described.TopicInfo(name="r")
    subtopology = described.Subtopology(subtopology_id="0", source_topics=["t"], repartition_source_topics=[reads])
    topology = described.Topology(epoch=3, subtopologies=[subtopology])
    made = {"group_id": "g", "group_state": "Stable", "group_epoch": 5, "assignment_epoch": 5, "topology": topology}
    return described.DescribedGroup(**{**made, **fields, "members": list(members)})


def test_a_row_for_each_task_of_each_member() -> None:
    found = group(
        member("b", assignment(active=[0], warmup=[2]), assignment(active=[0, 1], warmup=[2])),
        member("a", assignment(active=[1], standby=[0]), assignment(standby=[0])),
        member("idle", assignment(), assignment()),
    )
    shown = rows(found, {("t", 0): 5, ("r", 0): 2, ("t", 1): 0, ("t", 3): 4, ("other", 0): 9})
    assert [(row["task"], row["role"], row["member"], row["lag"]) for row in shown] == [
        ("0_0", "active", "b", 7),
        ("0_0", "standby", "a", 7),
        ("0_1", "active", "a", 0),
        ("0_1", "to be active", "b", 0),
        ("0_2", "warm-up", "b", None),
        ("0_3", None, None, 4),
        (None, None, "idle", None),
    ]
    assert [shown[0][key] for key in ("host", "process", "epoch")] == ["h", "pb", 4]


def test_a_group_in_a_few_words() -> None:
    assert title(group()) == "g: streams group, Stable, 0 members, group epoch 5, topology epoch 3"
    late = group(group_state="NotReady", assignment_epoch=4, topology=None)
    assert title(late) == "g: streams group, NotReady, 0 members, group epoch 5 (assigned: 4), no topology"
    assert rows(late, {("t", 0): 1}) == []


def test_a_streams_group_is_listed_described_and_explained(
    barnabas: Barnabas, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    name = f"streams-of-{topic}"
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    barnabas("produce", topic, "--file", str(lines), "--partition", "1")
    host, port = bootstrap.split(",")[0].split(":")
    topology = Topology(epoch=3, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    join = StreamsGroupHeartbeatRequest(
        group_id=name, member_id="m", rebalance_timeout_ms=60_000, process_id="p", topology=topology, active_tasks=[],
        standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip
    with NodeConnection(host, int(port), timeout_ms=20_000, client_id="a thread") as connection:

        def has_tasks() -> bool:
            connection.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]), 4)
            joined = connection.send(join, 0)
            return not joined.error_code and bool(joined.active_tasks)

        eventually("the member has its tasks", has_tasks)
        at = OffsetCommitRequestPartition(partition_index=1, committed_offset=1)
        commit = OffsetCommitRequest(
            group_id=name, member_id="m", generation_id_or_member_epoch=2,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[at])],
        )  # fmt: skip
        (committed,) = connection.send(commit, 9).topics
        assert committed.partitions[0].error_code == 0

        assert [name, "STABLE", "STREAMS"] in barnabas("group", "list").rows
        shown = json.loads(barnabas("group", "describe", name, "--json").out)
        assert [(row["task"], row["role"], row["member"], row["process"], row["lag"]) for row in shown] == [
            ("0_0", "active", "m", "p", None), ("0_1", "active", "m", "p", 2),
        ]  # fmt: skip
        explained = barnabas("explain", "group", name).out
        assert f"{name} is a streams group (KIP-1071), Stable, in group epoch 2, topology epoch 3." in explained
        assert "  m (client a thread, 127.0.0.1): stable, at epoch 2; its tasks: 2 active" in explained
        assert f"  {topic}-1: committed 1, its end is 3: 2 records behind" in explained
        connection.send(StreamsGroupHeartbeatRequest(group_id=name, member_id="m", member_epoch=-1), 0)
    (empty,) = json.loads(barnabas("group", "describe", name, "--json").out)
    assert (empty["task"], empty["role"], empty["lag"]) == ("0_1", None, 2)
