"""The responses to members of share groups (KIP-932) and about their offsets, step by step.

See `group_life_questions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k90_describe_share_group_offsets as k90
from barnabas.protocol.messages import k91_alter_share_group_offsets as k91
from barnabas.protocol.messages import k92_delete_share_group_offsets as k92
from barnabas.protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.k77_share_group_describe import ShareGroupDescribeRequest
from tests.compare import consumer_group_questions as consumer
from tests.compare import group_life_questions as classic
from tests.compare.conversation import AnswersByVersion, Conversation
from tests.support.waiting import eventually

Story = Callable[["Member"], Iterator[tuple[str, Any]]]


@dataclass(slots=True)
class Member:
    """A member of the share protocol. It keeps its epoch."""

    conversation: Conversation
    group: str
    topic: str
    topic_id: bytes
    member_id: str = "one"
    epoch: int = 0

    def another(self, member_id: str) -> Member:
        """Return another member of the same group."""
        return Member(self.conversation, self.group, self.topic, self.topic_id, member_id)

    def consumer(self) -> consumer.Member:
        """Return a member of the consumer protocol, which can ask about any group."""
        return consumer.Member(self.conversation, self.group, self.topic, self.topic_id)

    def classic(self) -> classic.Member:
        """Return a member of the classic protocol, which can ask about any group."""
        return classic.Member(self.conversation, self.group, self.topic)

    def heartbeat(self, epoch: int | None = None, **fields: Any) -> Any:
        """Send a heartbeat with these fields."""
        given = {"member_id": self.member_id, "group_id": self.group, **fields}
        epoch = self.epoch if epoch is None else epoch
        answer = self.conversation.ask(ShareGroupHeartbeatRequest(member_epoch=epoch, **given), 1)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                for topic in answer.assignment.topic_partitions:
                    topic.partitions.sort()
        return answer

    def join(self, **fields: Any) -> Any:
        """Join the group."""
        return self.heartbeat(0, **{"subscribed_topic_names": [self.topic], **fields})

    def assigned(self) -> Any:
        """Send heartbeats until there are partitions; the share coordinators work in the background."""

        def answer() -> Any:
            given = self.heartbeat()
            return given if given.assignment is not None and given.assignment.topic_partitions else None

        return eventually("the member has partitions", answer)

    def leave(self) -> Any:
        """Leave the group."""
        return self.heartbeat(-1)

    def assign_at_once(self) -> None:
        """Set the assignment interval to 0, so that every change has a new assignment at once."""
        assert self.consumer().configure(share_assignment_interval_ms="0").responses[0].error_code == ErrorCode.NONE
        name = "share.assignment.interval.ms"
        eventually("the interval is known", lambda: self.consumer().setting(name) == "0")

    def describe(self) -> Any:
        """Describe the group, with its members sorted by id."""
        answer = self.conversation.ask(
            ShareGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=True), 1
        )
        for group in answer.groups:
            group.members.sort(key=lambda member: member.member_id)
            for member in group.members:
                for topic in member.assignment.topic_partitions:
                    topic.partitions.sort()
        return answer

    def offsets(self, topics: Mapping[str, list[int]] | None, version: int = 1) -> Any:
        """Describe the offsets of these partitions; None for all."""
        wanted = None
        if topics is not None:
            wanted = [
                k90.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
                for name, partitions in topics.items()
            ]
        group = k90.DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=wanted)
        return self.conversation.ask(k90.DescribeShareGroupOffsetsRequest(groups=[group]), version)

    def alter(self, topics: Mapping[str, Mapping[int, int]]) -> Any:
        """Alter offsets."""
        wanted = [
            k91.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    k91.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
                    for partition, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ]
        answer = self.conversation.ask(k91.AlterShareGroupOffsetsRequest(group_id=self.group, topics=wanted), 0)
        answer.responses.sort(key=lambda topic: topic.topic_name)
        return answer

    def delete_offsets(self, *names: str) -> Any:
        """Delete the offsets of topics."""
        topics = [k92.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        answer = self.conversation.ask(k92.DeleteShareGroupOffsetsRequest(group_id=self.group, topics=topics), 0)
        answer.responses.sort(key=lambda topic: topic.topic_name)
        return answer


def questions(topic: str, topic_id: bytes) -> Iterator[tuple[str, Callable[[Conversation], AnswersByVersion]]]:
    """Return the stories by name, each with its own group."""
    for what, story in STORIES.items():
        yield f"Share group: {what}", lambda asked, what=what, story=story: _tell(asked, what, story, topic, topic_id)


def _tell(conversation: Conversation, what: str, story: Story, topic: str, topic_id: bytes) -> AnswersByVersion:
    member = Member(conversation, f"share-group-{what.replace(' ', '-')}", topic, topic_id)
    return {
        f"{number}. {step}": conversation.comparable(answer) for number, (step, answer) in enumerate(story(member), 1)
    }


def _refused(one: Member) -> Iterator[tuple[str, Any]]:
    """Inconsistent requests, and requests with unknown ids."""
    yield "join without a member id", one.join(member_id="")
    yield "join with a blank member id", one.join(member_id=" ")
    yield "join with a long member id", one.join(member_id="m" * 37)
    yield "join without a group id", one.join(group_id="")
    yield "join with a blank rack", one.join(rack_id=" ")
    yield "join without a subscription", one.join(subscribed_topic_names=None)
    yield "join with an empty subscription", one.join(subscribed_topic_names=[])
    yield "an epoch that means nothing", one.heartbeat(-2)
    yield "heartbeat to no group", one.heartbeat(1)
    yield "leave no group", one.leave()
    yield "describe no group", one.describe()
    yield "delete no group", one.classic().delete()
    yield "all offsets of no group", one.offsets(None)
    yield "offsets of no group", one.offsets({one.topic: [0], "nothing": [0]})
    yield "no offsets of no group", one.offsets({})
    yield "delete offsets of no group", one.delete_offsets(one.topic)


def _life(one: Member) -> Iterator[tuple[str, Any]]:
    """A member alone, from its first join to the end of its group."""
    one.assign_at_once()
    yield "join", one.join()
    yield "get partitions", one.assigned()
    yield "heartbeat", one.heartbeat()
    yield "a full heartbeat", one.heartbeat(subscribed_topic_names=[one.topic])
    yield "join again", one.join()
    yield "heartbeat in the previous epoch", one.heartbeat(one.epoch - 1)
    yield "heartbeat in an earlier epoch", one.heartbeat(one.epoch - 2)
    yield "heartbeat in a later epoch", one.heartbeat(9)
    yield "heartbeat as somebody else", one.heartbeat(member_id="nobody")
    yield "describe", one.describe()
    yield "describe as a classic group", one.classic().describe()
    yield "describe as a consumer group", one.consumer().describe()
    yield "list", one.consumer().listed()
    yield "list share groups", one.consumer().listed(types_filter=["Share"])
    yield "list consumer groups", one.consumer().listed(types_filter=["consumer"])
    yield "list stable groups", one.consumer().listed(states_filter=["stable"])
    yield "list empty groups", one.consumer().listed(states_filter=["Empty"])
    yield "join as a consumer", one.consumer().join()
    yield "join as a member of a classic group", one.classic().join()
    yield "commit an offset", one.consumer().commit(-1, member_id="")
    yield "fetch offsets", one.consumer().fetch(None, -1)
    yield "delete the group", one.classic().delete()
    yield "change the subscription", one.heartbeat(subscribed_topic_names=["nothing"])
    yield "change it back", one.heartbeat(subscribed_topic_names=[one.topic])
    yield "leave", one.leave()
    yield "heartbeat after leaving", one.heartbeat(3)
    yield "leave again", one.leave()
    yield "describe the empty group", one.describe()
    yield "list the empty group", one.consumer().listed(states_filter=["empty"])
    yield "join the empty group as a consumer", one.consumer().join()
    yield "join the empty group as a member of a classic group", one.classic().join()
    yield "delete the empty group", one.classic().delete()
    yield "describe the deleted group", one.describe()
    yield "delete it again", one.classic().delete()


def _several(one: Member) -> Iterator[tuple[str, Any]]:
    """Members share two partitions."""
    one.assign_at_once()
    two, three = one.another("two"), one.another("three")
    one.join()
    one.assigned()
    yield "another one joins", _counted(two.join())
    yield "the first one gives up", _counted(one.heartbeat())
    yield "a third one joins", _counted(three.join())
    yield "the first one", _counted(one.heartbeat())
    yield "the second one", _counted(two.heartbeat())
    two.leave()
    yield "one has left", _counted(one.heartbeat())
    yield "the third one", _counted(three.heartbeat())
    three.leave()
    yield "the first one is alone", _counted(one.heartbeat())
    one.leave()


def _counted(answer: Any) -> Any:
    """Number the partitions of an answer: which ones a member gets is free."""
    for topic in () if answer.assignment is None else answer.assignment.topic_partitions:
        topic.partitions = list(range(len(topic.partitions)))
    return answer


def _offsets(one: Member) -> Iterator[tuple[str, Any]]:
    """Offsets of a group are described, altered and deleted."""
    yield "alter those of a topic that does not exist", one.alter({"nothing": {0: 1}})
    yield "alter those of a new group", one.alter({one.topic: {0: 1, 7: 1}})
    yield "describe all", one.offsets(None)
    yield "describe all without lag", one.offsets(None, 0)
    yield "describe some", one.offsets({one.topic: [0, 1]})
    yield "list", one.consumer().listed()
    one.assign_at_once()
    one.join()
    one.assigned()
    yield "alter those of a group with members", one.alter({one.topic: {0: 2}})
    yield "delete those of a group with members", one.delete_offsets(one.topic)
    yield "describe all with a member", one.offsets(None)
    one.leave()
    yield "alter them again", one.alter({one.topic: {0: 2}})
    yield "alter them back", one.alter({one.topic: {0: 0}})
    yield "describe after that", one.offsets(None)
    yield "delete those of several topics", one.delete_offsets(one.topic, "nothing")
    yield "describe what was deleted", one.offsets({one.topic: [0, 1]})
    yield "delete them again", one.delete_offsets(one.topic)
    yield "delete the group", one.classic().delete()


STORIES: Mapping[str, Story] = {
    "requests that are refused": _refused,
    "a member alone": _life,
    "several members": _several,
    "offsets": _offsets,
}
