"""What to ask for each right on share groups; see `scenarios.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.authorization.row import Row
from barnabas.protocol.messages import k90_describe_share_group_offsets as k90
from barnabas.protocol.messages import k91_alter_share_group_offsets as k91
from barnabas.protocol.messages import k92_delete_share_group_offsets as k92
from barnabas.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.k77_share_group_describe import ShareGroupDescribeRequest
from tests.support.waiting import eventually


def heartbeat(kit: Any, topic: str, group: str = "g", epoch: int = 0) -> Any:
    """Join a group, or leave it."""
    names = [topic] if epoch == 0 else None
    message = ShareGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=names
    )
    return kit.ask_groups(message, 1)


def joined(kit: Any, topic: str, group: str) -> None:
    """Be a member that is assigned a topic."""

    def has_partitions() -> bool:
        assignment = heartbeat(kit, topic, group).assignment
        return assignment is not None and bool(assignment.topic_partitions)

    eventually(f"{topic} is assigned in share group {group}", has_partitions)


def subscribed(kit: Any) -> dict[str, int]:
    return {"t": heartbeat(kit, "t", "sk").error_code, "u": heartbeat(kit, "u", "sl").error_code}


def join_both(kit: Any) -> None:
    """Have a member in each group: of g with topic t, of h with topic u."""
    joined(kit, "t", "g")
    joined(kit, "u", "h")


def describe(kit: Any) -> dict[str, int]:
    kit.before(lambda: join_both(kit))
    answer = kit.ask_groups(ShareGroupDescribeRequest(group_ids=["g", "h"]), 1)
    return {g.group_id: g.error_code for g in answer.groups}


def topics_described(kit: Any) -> dict[str, int]:
    found = describe(kit)
    return {"t": found["g"], "u": found["h"]}


def describe_offsets(kit: Any, topics: list[str] | None) -> Any:
    wanted = None
    if topics is not None:
        wanted = [k90.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0]) for name in topics]
    groups = [k90.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted) for group in ("g", "h")]
    return kit.ask_groups(k90.DescribeShareGroupOffsetsRequest(groups=groups), 1).groups


def offsets_of_topics(kit: Any) -> dict[str, int]:
    topics = describe_offsets(kit, ["t", "u"])[0].topics
    return {topic.topic_name: topic.partitions[0].error_code for topic in topics}


def all_offsets(kit: Any) -> dict[str, int]:
    kit.before(lambda: alter_offsets(kit, "g"))
    return {topic.topic_name: 0 for topic in describe_offsets(kit, None)[0].topics}


def alter_offsets(kit: Any, group: str) -> Any:
    partition = k91.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
    topics = [k91.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=[partition]) for name in ("t", "u")]
    return kit.ask_groups(k91.AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)


def delete_offsets(kit: Any, group: str) -> Any:
    kit.before(lambda: alter_offsets(kit, group))
    topics = [k92.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "u")]
    return kit.ask_groups(k92.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics), 0)


SHARE_SCENARIOS: dict[Row, Callable[[Any], dict[str, int]]] = {
    rights.SHARE_HEARTBEAT: lambda kit: {
        group: heartbeat(kit, topic, group).error_code for group, topic in (("g", "t"), ("h", "u"))
    },
    rights.SHARE_HEARTBEAT_TOPIC: subscribed,
    rights.SHARE_GROUP_DESCRIBE: describe,
    rights.SHARE_GROUP_DESCRIBE_TOPIC: topics_described,
    rights.DESCRIBE_SHARE_OFFSETS: lambda kit: {g.group_id: g.error_code for g in describe_offsets(kit, [])},
    rights.DESCRIBE_SHARE_OFFSETS_TOPIC: offsets_of_topics,
    rights.DESCRIBE_SHARE_OFFSETS_ALL: all_offsets,
    rights.ALTER_SHARE_OFFSETS: lambda kit: {g: alter_offsets(kit, g).error_code for g in ("g", "h")},
    rights.ALTER_SHARE_OFFSETS_TOPIC: lambda kit: {
        topic.topic_name: topic.partitions[0].error_code for topic in alter_offsets(kit, "g").responses
    },
    rights.DELETE_SHARE_OFFSETS: lambda kit: {g: delete_offsets(kit, g).error_code for g in ("g", "h")},
    rights.DELETE_SHARE_OFFSETS_TOPIC: lambda kit: {
        topic.topic_name: topic.error_code for topic in delete_offsets(kit, "g").responses
    },
}
