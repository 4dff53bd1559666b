"""The responses to members of consumer groups (KIP-848), step by step; see `group_life_questions`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k11_join_group import JoinGroupRequestProtocol
from barnabas.protocol.messages.k13_leave_group import MemberIdentity
from barnabas.protocol.messages.k16_list_groups import ListGroupsRequest
from barnabas.protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.compare import group_life_questions as classic
from tests.compare.conversation import AnswersByVersion, Conversation
from tests.support.waiting import eventually

Story = Callable[["Member"], Iterator[tuple[str, Any]]]
GROUP_RESOURCE = 32
UNKNOWN_ID = bytes(range(16))


@dataclass(slots=True)
class Member:
    """A member of the consumer protocol. It keeps its epoch."""

    conversation: Conversation
    group: str
    topic: str
    topic_id: bytes
    member_id: str = "one"
    epoch: int = 0
    instance_id: str | None = None

    def another(self, member_id: str, instance_id: str | None = None) -> Member:
        """Return another member of the same group."""
        return Member(self.conversation, self.group, self.topic, self.topic_id, member_id, instance_id=instance_id)

    def classic(self, instance_id: str | None = None) -> classic.Member:
        """Return a member of the classic protocol."""
        return classic.Member(self.conversation, self.group, self.topic, instance_id=instance_id)

    def heartbeat(self, epoch: int | None = None, version: int = 1, **fields: Any) -> Any:
        """Send a heartbeat with these fields."""
        given = {"member_id": self.member_id, "instance_id": self.instance_id, **fields}
        epoch = self.epoch if epoch is None else epoch
        answer = self.conversation.ask(
            ConsumerGroupHeartbeatRequest(group_id=self.group, member_epoch=epoch, **given), version
        )
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
        return answer

    def join(self, version: int = 1, **fields: Any) -> Any:
        """Join the group."""
        given = {
            "rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": [], **fields,
        }  # fmt: skip
        return self.heartbeat(0, version, **given)

    def owns(self, *partitions: int, epoch: int | None = None) -> Any:
        """Report the owned partitions."""
        owned = [TopicPartitions(topic_id=self.topic_id, partitions=list(partitions))] if partitions else []
        return self.heartbeat(epoch, topic_partitions=owned)

    def leave(self, epoch: int = -1) -> Any:
        """Leave the group; epoch -2: as a static member, temporarily."""
        return self.heartbeat(epoch)

    def describe(self) -> Any:
        """Describe the group, with its members sorted by id."""
        answer = self.conversation.ask(
            ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=True), 1
        )
        for group in answer.groups:
            group.members.sort(key=lambda member: member.member_id)
            for member in group.members:
                for part in (member.assignment, member.target_assignment):
                    for topic in part.topic_partitions:
                        topic.partitions.sort()
        return answer

    def listed(self, **filters: list[str]) -> Any:
        """List the groups and keep only this one."""
        answer = self.conversation.ask(ListGroupsRequest(**filters), 5)
        answer.groups = [group for group in answer.groups if group.group_id == self.group]
        return answer

    def commit(self, epoch: int | None = None, version: int = 9, **fields: Any) -> Any:
        """Commit an offset of partition 0."""
        given = {"member_id": self.member_id, "generation_id_or_member_epoch": self.epoch if epoch is None else epoch}
        return self.classic(self.instance_id).commit(version, **{**given, **fields})

    def fetch(self, member_id: str | None, epoch: int) -> Any:
        """Fetch offsets as a member."""
        return self.classic().fetch(member_id=member_id, member_epoch=epoch)

    def configure(self, **configs: str | None) -> Any:
        """Change the group's configuration; None resets to the default."""
        changes = [
            AlterableConfig(name=name.replace("_", "."), config_operation=int(value is None), value=value)
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=changes)
        return self.conversation.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)

    def assign_at_once(self) -> None:
        """Set the assignment interval to 0, so that every change has a new assignment at once.

        The controller makes the change; the coordinator applies it slightly later.
        """
        assert self.configure(consumer_assignment_interval_ms="0").responses[0].error_code == ErrorCode.NONE
        name = "consumer.assignment.interval.ms"
        eventually("the interval is known", lambda: self.setting(name) == "0")

    def setting(self, name: str) -> Any:
        """Return a value of the group's configuration."""
        resource = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self.group, configuration_keys=[name]
        )
        return self.conversation.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].configs[0].value


def questions(topic: str, topic_id: bytes) -> Iterator[tuple[str, Callable[[Conversation], AnswersByVersion]]]:
    """Return the stories by name, each with its own group."""
    for what, story in STORIES.items():
        yield (
            f"Consumer group: {what}",
            lambda asked, what=what, story=story: _tell(asked, what, story, topic, topic_id),
        )


def _tell(conversation: Conversation, what: str, story: Story, topic: str, topic_id: bytes) -> AnswersByVersion:
    member = Member(conversation, f"consumer-group-{what.replace(' ', '-')}", topic, topic_id)
    return {
        f"{number}. {step}": conversation.comparable(answer) for number, (step, answer) in enumerate(story(member), 1)
    }


def _refused(one: Member) -> Iterator[tuple[str, Any]]:
    """Inconsistent requests, and requests with unknown ids."""
    yield "join without a member id", one.join(member_id="")
    yield "join with a blank member id", one.join(member_id=" ")
    yield "heartbeat without a member id as in v0", one.heartbeat(1, 0, member_id="")
    yield "leave without a member id as in v0", one.heartbeat(-1, 0, member_id="")
    yield "join with a blank instance id", one.join(instance_id="")
    yield "join with a blank rack", one.join(rack_id=" ")
    yield "join without a rebalance timeout", one.join(rebalance_timeout_ms=-1)
    yield "join without saying what it owns", one.join(topic_partitions=None)
    yield "join owning something", one.join(topic_partitions=[TopicPartitions(topic_id=one.topic_id, partitions=[0])])
    yield "join without a subscription", one.join(subscribed_topic_names=None)
    yield "join with an unknown assignor", one.join(server_assignor="sticky")
    yield "leave for a while without an instance id", one.heartbeat(-2)
    yield "an epoch that means nothing", one.heartbeat(-3)
    for regex in ("(", "a**", "(?=a)", "\\1", "[b-a]", "a{1001}", "\\p{Nothing}", "x)"):
        yield (
            f"join with the regular expression {regex}",
            one.join(subscribed_topic_names=None, subscribed_topic_regex=regex),
        )
    yield "heartbeat to no group", one.heartbeat(1)
    yield "leave no group", one.heartbeat(-1)
    yield "leave no group for a while", one.heartbeat(-2, instance_id="i")
    yield "describe no group", one.describe()
    yield "fetch from no group as a member", one.fetch("one", 1)
    yield "commit to no group as a member", one.commit(1)


def _life(one: Member) -> Iterator[tuple[str, Any]]:
    """A member alone, from its first join to the end of its group."""
    one.assign_at_once()
    yield "join", one.join()
    yield "heartbeat", one.owns(0, 1)
    yield "describe", one.describe()
    yield "describe as a classic group", one.classic().describe()
    yield "list", one.listed()
    yield "list classic groups", one.listed(types_filter=["classic"])
    yield "list consumer groups", one.listed(types_filter=["Consumer"])
    yield "list stable groups", one.listed(states_filter=["stable"])
    yield "list reconciling groups", one.listed(states_filter=["Reconciling"])
    yield "heartbeat as somebody else", one.heartbeat(member_id="nobody")
    yield "heartbeat in a later epoch", one.heartbeat(9)
    yield "heartbeat in an earlier epoch", one.heartbeat(1)
    yield "heartbeat as an unknown instance", one.heartbeat(instance_id="i")
    yield "a full heartbeat", one.heartbeat(
        rebalance_timeout_ms=30_000, subscribed_topic_names=[one.topic],
        topic_partitions=[TopicPartitions(topic_id=one.topic_id, partitions=[0, 1])],
    )  # fmt: skip
    yield "join again", one.join()
    yield "commit", one.commit()
    yield "commit as in v8", one.commit(version=8)
    yield "commit in a later epoch", one.commit(9)
    yield "commit in an earlier epoch", one.commit(1)
    yield "commit as somebody else", one.commit(member_id="nobody")
    yield "commit as nobody", one.commit(-1, member_id="")
    yield "commit by topic id", one.commit(version=10, topic_id=one.topic_id, offset=6)
    yield "fetch", one.fetch("one", one.epoch)
    yield "fetch in a later epoch", one.fetch("one", 9)
    yield "fetch in an earlier epoch", one.fetch("one", 1)
    yield "fetch as somebody else", one.fetch("nobody", 1)
    yield "fetch as nobody", one.fetch(None, -1)
    yield "delete the group", one.classic().delete()
    yield "delete an offset of what it reads", one.classic().delete_offset(one.topic)
    yield "another subscription", one.heartbeat(subscribed_topic_names=["nothing-like-it"], topic_partitions=None)
    yield "having revoked", one.owns()
    yield "delete an offset of what it reads no more", one.classic().delete_offset(one.topic)
    yield "the first subscription", one.heartbeat(subscribed_topic_names=[one.topic])
    yield "another rack", one.heartbeat(rack_id="r")
    yield "another assignor", one.heartbeat(server_assignor="range")
    yield "describe again", one.describe()
    yield "leave as somebody else", one.heartbeat(-1, member_id="nobody")
    yield "leave as an unknown instance", one.heartbeat(-1, instance_id="i")
    yield "leave", one.leave()
    yield "heartbeat after leaving", one.heartbeat(4)
    yield "leave after leaving", one.leave()
    yield "describe an empty group", one.describe()
    yield "list empty groups", one.listed(states_filter=["empty"])
    yield "commit as nobody to an empty group", one.commit(-1, member_id="")
    yield "delete an empty group", one.classic().delete()
    yield "describe no group", one.describe()


def _two(one: Member) -> Iterator[tuple[str, Any]]:
    """Two members, and a partition that moves from one to the other."""
    one.assign_at_once()
    two = one.another("two")
    yield "join of the first", one.join()
    one.owns(0, 1)
    yield "join of the second", two.join()
    yield "describe while the first does not know", one.describe()
    yield "heartbeat of the second", two.owns()
    yield "the first is to revoke", one.heartbeat()
    yield "describe while it revokes", one.describe()
    yield "heartbeat while it revokes", one.owns(0, 1)
    yield "commit while it revokes", one.commit()
    yield "the second still waits", two.owns()
    yield "the first has revoked", one.owns(0)
    yield "the answer was lost", one.owns(0, epoch=2)
    yield "the answer was lost, and it owns more", one.owns(0, 1, epoch=2)
    yield "the second gets it", two.owns()
    yield "describe", one.describe()
    yield "commit in the epoch before, of what it had then", one.commit(2)
    yield "commit of the second in the epoch before", two.commit(2)
    yield "the second leaves", two.leave()
    yield "the first gets it back", one.heartbeat()
    yield "commit in the epoch before, of what it always had", one.commit(3)


def _static(one: Member) -> Iterator[tuple[str, Any]]:
    """A static member that leaves temporarily, and others with the same instance id."""
    one.assign_at_once()
    one.instance_id = "i"
    yield "join", one.join()
    yield "heartbeat", one.owns(0, 1)
    two = one.another("two", "i")
    yield "join in its place", two.join()
    yield "leave for a while", one.leave(-2)
    yield "describe while it is away", one.describe()
    yield "heartbeat while it is away", one.heartbeat(2)
    yield "join in its place while it is away", two.join()
    yield "heartbeat of the former", one.heartbeat(2)
    yield "leave of the former", one.leave()
    yield "heartbeat without the instance id", two.heartbeat(instance_id=None)
    yield "describe", two.describe()
    yield (
        "leave by instance as in the classic protocol",
        two.classic().leave(
            MemberIdentity(member_id="", group_instance_id="j"),
            MemberIdentity(member_id="nobody", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="i"),
        ),
    )
    yield "heartbeat after that", two.heartbeat()


def _regex(one: Member) -> Iterator[tuple[str, Any]]:
    """A subscription by regular expression, resolved in the background."""
    one.assign_at_once()
    yield "join", one.join(subscribed_topic_names=None, subscribed_topic_regex=f"{one.topic[:-1]}.")
    eventually("it has partitions", lambda: _has_partitions(one))
    yield "describe", one.describe()
    yield "no expression any more", one.heartbeat(subscribed_topic_regex="", subscribed_topic_names=[one.topic])
    yield "leave", one.leave()


def _has_partitions(member: Member) -> bool:
    member.heartbeat()
    return bool(member.describe().groups[0].members[0].assignment.topic_partitions)


def _configs(one: Member) -> Iterator[tuple[str, Any]]:
    """The configuration of a group."""
    yield "a longer heartbeat interval", one.configure(consumer_heartbeat_interval_ms="7000")
    yield "too short a heartbeat interval", one.configure(consumer_heartbeat_interval_ms="10")
    yield "too long a session timeout", one.configure(consumer_session_timeout_ms="600000")
    yield "a key that does not exist", one.configure(consumer_nothing="1")

    def is_applied() -> bool:
        return bool(one.join().heartbeat_interval_ms == 7000)

    eventually("the interval is applied", is_applied)
    yield "heartbeat", one.heartbeat()
    yield "the default again", one.configure(consumer_heartbeat_interval_ms=None)
    eventually("the default is applied", lambda: one.heartbeat().heartbeat_interval_ms == 5000)
    yield "leave", one.leave()


def _migration(one: Member) -> Iterator[tuple[str, Any]]:
    """A classic group becomes a consumer group when one of its consumers is upgraded, and back."""
    one.assign_at_once()
    old = one.classic()
    old.join()
    yield "join by the classic protocol", old.join()
    yield "sync", old.sync(assignments=_all_to(old))
    yield "join by the consumer protocol", one.join()
    yield "describe", _described(one, old)
    yield "describe as a classic group", old.describe()
    yield "the classic member is to join again", old.heartbeat()
    yield "sync before that", old.sync(assignments=[])
    yield "sync in another generation", old.sync(generation_id=9)
    yield "heartbeat in another generation", old.heartbeat(generation_id=9)
    yield "join again, still owning all", old.join(protocols=_owning(old, 0, 1))
    yield "sync while it is to revoke", old.sync(assignments=[])
    yield "heartbeat while it is to revoke", old.heartbeat()
    yield "join again, having revoked", old.join(protocols=_owning(old, 0))
    yield "sync", old.sync(assignments=[])
    yield "sync by another protocol", old.sync(protocol_name="roundrobin")
    yield "sync by another type", old.sync(protocol_type="connect")
    yield "heartbeat", old.heartbeat()
    yield "the new one gets its part", one.owns()
    yield "commit of the classic member", old.commit()
    yield "commit of the classic member in another generation", old.commit(generation_id_or_member_epoch=9)
    yield "sync of the consumer member", old.sync(member_id="one", generation_id=one.epoch)
    yield "heartbeat of the consumer member", old.heartbeat(member_id="one", generation_id=one.epoch)
    yield "join with another protocol", old.join(protocols=[JoinGroupRequestProtocol(name="x", metadata=b"")])
    yield "join of another classic member", one.classic().join()
    yield "the consumer member leaves", one.leave()
    yield "describe as a consumer group", one.describe()
    yield "the classic member is to join", old.heartbeat()
    yield "list", one.listed()
    yield "leave of the classic member", old.leave()
    yield "join of the consumer member to the empty classic group", one.join()
    yield "list again", one.listed()
    yield "leave", one.leave()
    yield "join of a classic member to the empty consumer group", one.classic().join()
    yield "list at last", one.listed()


def _all_to(member: classic.Member) -> list[Any]:
    from barnabas.protocol.messages.k14_sync_group import SyncGroupRequestAssignment

    return [SyncGroupRequestAssignment(member_id=member.member_id, assignment=_partitions(member.topic, 0, 1))]


def _partitions(topic: str, *partitions: int) -> bytes:
    """A consumer's assignment, version 1: partitions of one topic, no user data."""
    name = topic.encode()
    ids = b"".join(partition.to_bytes(4, "big") for partition in partitions)
    count = len(partitions).to_bytes(4, "big")
    return b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + count + ids + b"\xff\xff\xff\xff"


def _owning(member: classic.Member, *partitions: int) -> list[JoinGroupRequestProtocol]:
    """Encode a subscription with the member's owned partitions."""
    name = member.topic.encode()
    owned = _partitions(member.topic, *partitions)[2:-4]
    topics = b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    return [JoinGroupRequestProtocol(name="range", metadata=topics + owned)]


def _described(one: Member, old: classic.Member) -> Any:
    answer = one.describe()
    answer.groups[0].members.sort(key=lambda member: member.member_id == old.member_id)
    return answer


STORIES: dict[str, Story] = {
    "refused": _refused, "life": _life, "two": _two, "static": _static, "regex": _regex, "configs": _configs,
    "migration": _migration,
}  # fmt: skip
