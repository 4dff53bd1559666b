"""Requests about unknown groups, and group requests that no client sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.schema import Request
from tests.compare.conversation import AnswersByVersion, Conversation
from tests.support.waiting import eventually

GROUP = "compared-group"
PROTOCOLS = [JoinGroupRequestProtocol(name="range", metadata=b"")]
Question = Callable[[Conversation], AnswersByVersion]


def questions(topic: str) -> Iterator[tuple[str, Question]]:
    """Yield the requests by name. Waits for the coordinator first."""
    yield "FindCoordinator", _find_coordinator
    for name, request in _requests(topic):
        yield name, lambda conversation, request=request: conversation.ask_in_every_version(request)


def _find_coordinator(conversation: Conversation) -> AnswersByVersion:
    request = FindCoordinatorRequest(key=GROUP)
    heartbeat = HeartbeatRequest(group_id=GROUP, member_id="x")
    eventually("the group has a coordinator", lambda: conversation.ask(request, 2).error_code == 0)
    eventually("it has loaded", lambda: conversation.ask(heartbeat, 1).error_code == 25)
    return {
        **conversation.ask_in_every_version(request),
        **conversation.ask_in_every_version(FindCoordinatorRequest(coordinator_keys=[GROUP, ""])),
    }


def _requests(topic: str) -> Iterator[tuple[str, Request]]:
    yield "FindCoordinator of no group", FindCoordinatorRequest(key="")
    yield "FindCoordinator of an unknown kind", FindCoordinatorRequest(key=GROUP, key_type=9)
    for group in (GROUP, ""):
        yield f"Heartbeat to '{group}'", HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
        yield f"SyncGroup of '{group}'", SyncGroupRequest(group_id=group, generation_id=1, member_id="nobody")
        yield f"LeaveGroup of '{group}'", LeaveGroupRequest(group_id=group, member_id="nobody")
        yield (
            f"LeaveGroup of '{group}', members",
            LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="nobody")]),
        )
        yield f"DescribeGroups of '{group}'", DescribeGroupsRequest(groups=[group])
        yield f"DeleteGroups of '{group}'", DeleteGroupsRequest(groups_names=[group])
        yield f"OffsetDelete of '{group}'", _offset_delete(group, topic)
    yield from _join_requests()
    yield from _offset_requests(topic)


def _join_requests() -> Iterator[tuple[str, Request]]:
    def join(group: str = GROUP, timeout_ms: int = 10_000, member: str = "", **fields: object) -> JoinGroupRequest:
        given = {"protocol_type": "consumer", "protocols": PROTOCOLS, **fields}
        return JoinGroupRequest(group_id=group, session_timeout_ms=timeout_ms, member_id=member, **given)

    yield "JoinGroup of no group", join(group="")
    yield "JoinGroup with too short a session", join(timeout_ms=1)
    yield "JoinGroup with too long a session", join(timeout_ms=10_000_000)
    yield "JoinGroup of an unknown member", join(member="nobody")
    yield "JoinGroup without protocols", join(group="joined-without-protocols", protocols=[])
    yield "JoinGroup without a type", join(group="joined-without-type", protocol_type="")


def _offset_requests(topic: str) -> Iterator[tuple[str, Request]]:
    def commit(group: str, name: str, partition: int, **fields: object) -> OffsetCommitRequest:
        row = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=5, committed_metadata=str(fields.pop("metadata", "note"))
        )
        topics = [OffsetCommitRequestTopic(name=name, partitions=[row])]
        return OffsetCommitRequest(group_id=group, topics=topics, **fields)

    def fetch(group: str, name: str | None) -> OffsetFetchRequest:
        old = [OffsetFetchRequestTopic(name=name, partition_indexes=[0, 9])] if name else None
        return OffsetFetchRequest(group_id=group, topics=old)

    def fetch_groups(group: str, name: str | None) -> OffsetFetchRequest:
        new = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 9])] if name else None
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=new)])

    yield "OffsetCommit", commit("simple", topic, 0)
    yield "OffsetCommit of an unknown topic", commit("simple", "unknown", 0)
    yield "OffsetCommit of an unknown partition", commit("simple", topic, 9)
    yield "OffsetCommit of no group", commit("", topic, 0)
    yield "OffsetCommit with long metadata", commit("simple", topic, 0, metadata="x" * 5000)
    yield (
        "OffsetCommit of an unknown member",
        commit("simple", topic, 0, generation_id_or_member_epoch=3, member_id="nobody"),
    )
    for group in ("simple", "unknown", ""):
        for name in (topic, "unknown", None):
            yield f"OffsetFetch of '{group}', {name}", fetch(group, name)
            yield f"OffsetFetch of '{group}', {name}, groups", fetch_groups(group, name)
    yield "OffsetDelete", _offset_delete("simple", topic)
    yield "DescribeGroups of a simple group", DescribeGroupsRequest(groups=["simple"])
    yield "DeleteGroups of a simple group", DeleteGroupsRequest(groups_names=["simple"])


def _offset_delete(group: str, topic: str) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 9)]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])
