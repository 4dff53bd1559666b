"""The responses to members of live groups, step by step: the recorded "versions" are the steps.

A story is a generator of (step, response). A request that waits for other members has a separate connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.k15_describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.k42_delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.schema import Request
from tests.compare.conversation import AnswersByVersion, Conversation, Later
from tests.support.waiting import eventually

Story = Callable[["Member"], Iterator[tuple[str, Any]]]
SESSION_MS, REBALANCE_MS = 30_000, 30_000
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH, DESCRIBE, DELETE = 9, 5, 4, 5, 9, 9, 6, 2


def subscription(topic: str) -> bytes:
    """Encode a consumer's subscription, version 1: one topic, no user data, no owned partitions."""
    name = topic.encode()
    return b"\x00\x01\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff\x00\x00\x00\x00"


@dataclass(slots=True)
class Member:
    """One member. Its requests get a response at once, except `join_later` and `sync_later`."""

    conversation: Conversation
    group: str
    topic: str
    member_id: str = ""
    generation_id: int = -1
    instance_id: str | None = None

    def another(self, instance_id: str | None = None) -> Member:
        """Return another member of the same group."""
        return Member(self.conversation, self.group, self.topic, instance_id=instance_id)

    def ask(self, request: Request, version: int) -> Any:
        """Send any request."""
        return self.conversation.ask(request, version)

    def join(self, version: int = JOIN, **fields: Any) -> Any:
        """Join the group and keep the member id and generation of the response."""
        return self._remember(self.ask(self._join_request(**fields), version))

    def join_later(self) -> Callable[[], Any]:
        """Join the group and wait for others. The result returns the response later."""
        later = self.conversation.ask_later(self._join_request(), JOIN)
        return lambda: self._remember(later.answer())

    def _join_request(self, **fields: Any) -> JoinGroupRequest:
        given = {
            "protocol_type": "consumer", "member_id": self.member_id, "group_instance_id": self.instance_id,
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription(self.topic))], **fields,
        }  # fmt: skip
        return JoinGroupRequest(
            group_id=self.group, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS, **given
        )

    def _remember(self, answer: Any) -> Any:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return answer

    def sync(self, version: int = SYNC, **fields: Any) -> Any:
        """Sync as the leader and only member."""
        return self.ask(self._sync_request(**fields), version)

    def sync_later(self) -> Later:
        """Sync and wait for the leader."""
        return self.conversation.ask_later(self._sync_request(assignments=[]), SYNC)

    def _sync_request(self, **fields: Any) -> SyncGroupRequest:
        given = {
            "member_id": self.member_id, "generation_id": self.generation_id, "group_instance_id": self.instance_id,
            "protocol_type": "consumer", "protocol_name": "range",
            "assignments": [SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")], **fields,
        }  # fmt: skip
        return SyncGroupRequest(group_id=self.group, **given)

    def heartbeat(self, version: int = HEARTBEAT, **fields: Any) -> Any:
        """Send a heartbeat."""
        given = {
            "member_id": self.member_id, "generation_id": self.generation_id, "group_instance_id": self.instance_id,
            **fields,
        }  # fmt: skip
        return self.ask(HeartbeatRequest(group_id=self.group, **given), version)

    def leave(self, *others: MemberIdentity, version: int = LEAVE) -> Any:
        """Leave the group, or remove other members."""
        own = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id, reason="enough")
        return self.ask(LeaveGroupRequest(group_id=self.group, members=list(others) or [own]), version)

    def commit(
        self, version: int = COMMIT, *, offset: int = 5, name: str | None = None, topic_id: bytes = ZERO_UUID,
        metadata: str = "note", **fields: Any,
    ) -> Any:  # fmt: skip
        """Commit an offset of partition 0."""
        row = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        given = {
            "member_id": self.member_id, "generation_id_or_member_epoch": self.generation_id,
            "group_instance_id": self.instance_id, **fields,
        }  # fmt: skip
        topics = [OffsetCommitRequestTopic(name=name or self.topic, topic_id=topic_id, partitions=[row])]
        return self.ask(OffsetCommitRequest(group_id=self.group, topics=topics, **given), version)

    def fetch(self, version: int = FETCH, *, topic_id: bytes = ZERO_UUID, **fields: Any) -> Any:
        """Fetch the offsets of partitions 0 and 1."""
        topics = [OffsetFetchRequestTopics(name=self.topic, topic_id=topic_id, partition_indexes=[0, 1])]
        group = OffsetFetchRequestGroup(group_id=self.group, topics=topics, **fields)
        return self.ask(OffsetFetchRequest(groups=[group], require_stable=True), version)

    def describe(self) -> Any:
        """Describe the group."""
        return self.ask(DescribeGroupsRequest(groups=[self.group], include_authorized_operations=True), DESCRIBE)

    def delete(self) -> Any:
        """Delete the group."""
        return self.ask(DeleteGroupsRequest(groups_names=[self.group]), DELETE)

    def delete_offset(self, name: str) -> Any:
        """Delete the offset of a topic's partition 0."""
        topic = OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        return self.ask(OffsetDeleteRequest(group_id=self.group, topics=[topic]), 0)


def questions(topic: str) -> Iterator[tuple[str, Callable[[Conversation], AnswersByVersion]]]:
    """Return the stories by name, each with its own group."""
    for what, story in STORIES.items():
        yield f"Group: {what}", lambda asked, what=what, story=story: _tell(asked, what, story, topic)


def _tell(conversation: Conversation, what: str, story: Story, topic: str) -> AnswersByVersion:
    member = Member(conversation, f"group-{what.replace(' ', '-')}", topic)
    return {
        f"{number}. {step}": conversation.comparable(answer) for number, (step, answer) in enumerate(story(member), 1)
    }


def _life(one: Member) -> Iterator[tuple[str, Any]]:
    """A member alone, from its first join to the end of its group."""
    yield "join without a member id", one.join()
    yield "join", one.join()
    yield "heartbeat before the assignment", one.heartbeat()
    yield "commit before the assignment", one.commit()
    yield "describe before the assignment", one.describe()
    yield "sync in another generation", one.sync(generation_id=7)
    yield "sync as somebody else", one.sync(member_id="nobody")
    yield "sync by another protocol", one.sync(protocol_name="roundrobin")
    yield "sync by another type", one.sync(protocol_type="connect")
    yield "sync by no protocol", one.sync(protocol_name=None)
    yield "sync with an instance id", one.sync(group_instance_id="i")
    yield "sync", one.sync()
    yield "sync again", one.sync()
    yield "sync as in v4", one.sync(4)
    yield "heartbeat", one.heartbeat()
    yield "heartbeat in another generation", one.heartbeat(generation_id=7)
    yield "heartbeat as somebody else", one.heartbeat(member_id="nobody")
    yield "heartbeat with an instance id", one.heartbeat(group_instance_id="i")
    yield "commit", one.commit()
    yield "commit in another generation", one.commit(generation_id_or_member_epoch=7)
    yield "commit as somebody else", one.commit(member_id="nobody")
    yield "commit with an instance id", one.commit(group_instance_id="i")
    yield "commit as nobody", one.commit(member_id="", generation_id_or_member_epoch=-1)
    yield "commit in no generation", one.commit(generation_id_or_member_epoch=-1)
    yield "commit with too much metadata", one.commit(metadata="x" * 4097)
    yield "commit with just enough metadata", one.commit(metadata="x" * 4096, offset=6)
    yield "commit of another topic", one.commit(name="unknown")
    yield "fetch", one.fetch()
    yield "fetch as somebody else", one.fetch(member_id="nobody", member_epoch=4)
    yield "describe", one.describe()
    yield "delete the group", one.delete()
    yield "delete an offset of what it reads", one.delete_offset(one.topic)
    yield "delete an offset of an unknown topic", one.delete_offset("unknown")
    yield "join again without a protocol", one.join(protocols=[])
    yield "join again with another type", one.join(protocol_type="connect")
    yield "join as somebody else", one.another().join(member_id="nobody")
    yield "join with another protocol", one.another().join(protocols=[JoinGroupRequestProtocol(name="x", metadata=b"")])
    yield "join again", one.join()
    yield "heartbeat in the old generation", one.heartbeat(generation_id=1)
    yield "commit in the old generation", one.commit(generation_id_or_member_epoch=1)
    yield "sync", one.sync()
    yield "leave as somebody else", one.leave(MemberIdentity(member_id="nobody"), MemberIdentity(member_id=""))
    yield "leave", one.leave()
    yield "heartbeat after leaving", one.heartbeat()
    yield "sync after leaving", one.sync()
    yield "commit after leaving", one.commit()
    yield "join after leaving", one.join()
    yield "leave after leaving", one.leave()
    yield "commit as nobody to an empty group", one.commit(
        offset=9, member_id="", generation_id_or_member_epoch=-1
    )  # fmt: skip
    yield "fetch from an empty group", one.fetch()
    yield "describe an empty group", one.describe()
    yield "delete an offset of an empty group", one.delete_offset(one.topic)
    yield "delete an empty group", one.delete()
    yield "describe no group", one.describe()
    yield "fetch from no group", one.fetch()
    yield "commit to no group", one.commit()
    yield "commit to no group as in v8", one.commit(8)


def _static(one: Member) -> Iterator[tuple[str, Any]]:
    """A static member, and later members with the same instance id."""
    one.instance_id = "i"
    yield "join", one.join()
    yield "sync", one.sync()
    yield "heartbeat without the instance id", one.heartbeat(group_instance_id=None)
    yield "heartbeat as an unknown instance", one.heartbeat(group_instance_id="j")
    for version in (9, 8, 5):
        before, one = one, one.another("i")
        yield f"join in its place as in v{version}", one.join(version)
        yield "heartbeat of the former", before.heartbeat()
        yield "commit of the former", before.commit()
        yield "sync of the former", before.sync()
        yield "join of the former", before.join(member_id=before.member_id)
        yield "leave of the former", before.leave()
        yield "sync", one.sync()
        yield "heartbeat", one.heartbeat()
    yield (
        "join in its place with another protocol",
        one.another("i").join(
            protocols=[JoinGroupRequestProtocol(name="roundrobin", metadata=subscription(one.topic))]
        ),
    )
    yield "describe", one.describe()
    yield (
        "leave by instance",
        one.leave(
            MemberIdentity(member_id="", group_instance_id="j"),
            MemberIdentity(member_id="nobody", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="i"),
        ),
    )
    yield "describe an empty group", one.describe()


def _two(one: Member) -> Iterator[tuple[str, Any]]:
    """Two members, through both phases of a rebalance."""
    one.join()
    one.join()
    yield "sync", one.sync()
    two = one.another()
    yield "join of the second", two.join()
    yield "heartbeat while somebody is expected", one.heartbeat()
    joined = two.join_later()
    rebalancing = ErrorCode.REBALANCE_IN_PROGRESS
    eventually("the first is asked to join", lambda: one.heartbeat().error_code == rebalancing)
    yield "sync in the join phase", one.sync()
    yield "commit in the join phase", one.commit()
    yield "commit as nobody in the join phase", one.commit(member_id="", generation_id_or_member_epoch=-1)
    yield "describe the join phase", one.describe()
    yield "delete the group in the join phase", one.delete()
    yield "delete an offset in the join phase", one.delete_offset("unknown")
    yield "join of the first", one.join()
    yield "the second has joined", joined()
    yield "join again in the sync phase", two.join()
    yield "join of the leader again in the sync phase", one.join()
    synced = two.sync_later()
    yield "commit in the sync phase", one.commit()
    yield "describe the sync phase", one.describe()
    yield "sync of the leader", one.sync()
    yield "the second has an assignment", synced.answer()
    yield "heartbeat of the second", two.heartbeat()
    yield "join of a follower again", two.join()
    yield (
        "leave of both and of somebody else",
        one.leave(
            MemberIdentity(member_id=one.member_id), MemberIdentity(member_id="nobody"),
            MemberIdentity(member_id=two.member_id),
        ),
    )  # fmt: skip
    yield "heartbeat of the second after that", two.heartbeat()
    yield "delete", one.delete()


def _topic_ids(one: Member) -> Iterator[tuple[str, Any]]:
    """Offsets by the topics' ids."""
    (topic_id,) = (id_ for id_, name in one.conversation.topic_ids.items() if name == f"id of {one.topic}")
    yield "commit by id", one.commit(10, topic_id=topic_id)
    yield "commit by an unknown id", one.commit(10, topic_id=bytes(range(16)))
    yield "commit by no id", one.commit(10)
    yield "fetch by id", one.fetch(10, topic_id=topic_id)
    yield "fetch by an unknown id", one.fetch(10, topic_id=bytes(range(16)))
    yield "fetch by no id", one.fetch(10)
    yield "fetch by name", one.fetch()
    yield "commit by name", one.commit(offset=8)
    yield "fetch by id what was committed by name", one.fetch(10, topic_id=topic_id)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=one.group, topics=None)])
    yield "fetch all by id", one.ask(everything, 10)
    yield "fetch all by name", one.ask(everything, 9)
    both = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in (one.group, "nobody's", one.group)]
    yield "fetch all of several groups", one.ask(OffsetFetchRequest(groups=both), 9)
    yield "fetch of no groups", one.ask(OffsetFetchRequest(groups=[]), 9)


STORIES: dict[str, Story] = {"life": _life, "static": _static, "two": _two, "topic ids": _topic_ids}
