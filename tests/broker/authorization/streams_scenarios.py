"""What to ask for each right on streams groups; see `scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.row import Row
from barnabas.protocol.messages.k88_streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from barnabas.protocol.messages.k89_streams_group_describe import StreamsGroupDescribeRequest


def join(kit: Any, topic: str, group: str) -> int:
    """Join a group whose application reads a topic."""
    topology = Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    message = StreamsGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=1000, process_id="p", topology=topology,
        active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip
    error: int = kit.ask_groups(message, 0).error_code
    return error


def join_both(kit: Any) -> None:
    """Have a member in each group: of g with topic t, of h with topic u."""
    join(kit, "t", "g")
    join(kit, "u", "h")


def describe(kit: Any) -> dict[str, int]:
    kit.before(lambda: join_both(kit))
    answer = kit.ask_groups(StreamsGroupDescribeRequest(group_ids=["g", "h"]), 0)
    return {g.group_id: g.error_code for g in answer.groups}


def topics_described(kit: Any) -> dict[str, int]:
    found = describe(kit)
    return {"t": found["g"], "u": found["h"]}


STREAMS_SCENARIOS: dict[Row, Callable[[Any], dict[str, int]]] = {
    rights.STREAMS_HEARTBEAT: lambda kit: {group: join(kit, topic, group) for group, topic in (("g", "t"), ("h", "u"))},
    rights.STREAMS_HEARTBEAT_TOPIC: lambda kit: {topic: join(kit, topic, f"s{topic}") for topic in ("t", "u")},
    rights.STREAMS_GROUP_DESCRIBE: describe,
    rights.STREAMS_GROUP_DESCRIBE_TOPIC: topics_described,
}
