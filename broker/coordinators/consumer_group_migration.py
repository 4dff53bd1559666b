"""Online migration between the protocols: a classic group becomes a consumer group, and back. Pure.

Theory
The first member of the consumer protocol that joins a classic group of consumers turns it into a consumer group, in
which the others go on as *classic members* (`consumer_group_classic.py`): generation becomes epoch, assignments become
targets. When the last member of the consumer protocol goes, those that are left become a classic group again.
`group.consumer.migration.policy` says which way is open.

Source: Kafka's ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, GroupMetadataManager.convertTo* (4.3),
KIP-848 (migration).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.broker.coordinators import consumer_group_types as t
from barnabas.broker.coordinators.consumer_group import NOTHING, ConsumerGroup
from barnabas.broker.coordinators.consumer_group_situation import ConsumerGroupSettings
from barnabas.broker.coordinators.consumer_group_types import Assignment, Member
from barnabas.broker.coordinators.consumer_protocol import (
    answer_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.members import CONSUMER_PROTOCOL_TYPE, Members, without_replaced
from barnabas.broker.coordinators.members import Member as ClassicMember
from barnabas.broker.coordinators.metadata_watch import metadata_hash
from barnabas.broker.metadata_cache import MetadataSnapshot
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError

# Up


def check_upgrade(group: Group, settings: ConsumerGroupSettings) -> None:
    """Raise ApiError(GROUP_ID_NOT_FOUND) unless the classic group may become a consumer group."""
    if not settings.may_upgrade:
        why = "online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.max_size:
        why = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    )


def to_consumer_group(group: Group, snapshot: MetadataSnapshot) -> tuple[ConsumerGroup, list[t.Record]]:
    """The consumer group that goes on where the classic one stands, and the records that make it.

    Raises ApiError(GROUP_ID_NOT_FOUND) if what its members have said cannot be carried over.
    """
    epoch = group.generation_id
    members = [_to_consumer_member(group, member, snapshot) for member in group.members.by_id.values()]
    names = {name for member in members for name in member.topic_names}
    records: list[t.Record] = [
        *(t.MemberMetadata(member.member_id, member) for member in members),
        t.GroupEpoch(epoch, metadata_hash(names, snapshot)),
        *(t.TargetAssignment(member.member_id, t.without_epochs(member.assigned)) for member in members),
        t.TargetEpoch(epoch),
        *(t.CurrentAssignment(member.member_id, member) for member in members),
    ]
    converted = ConsumerGroup(group.group_id)
    for record in records:
        converted.replay(record)
    return converted, records


def _to_consumer_member(group: Group, member: ClassicMember, snapshot: MetadataSnapshot) -> Member:
    try:
        subscription = read_subscription(member.metadata(group.protocol_name))
        assigned = _assigned(member.assignment, snapshot)
    except MalformedMessageError as error:
        raise _cannot_upgrade(group, f"the embedded consumer protocol is malformed: {error}") from None
    except ValueError as error:
        raise _cannot_upgrade(group, str(error)) from None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=subscription.topics,
        classic=t.ClassicPart(member.session_timeout_ms, member.protocols),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=t.with_epochs(assigned, group.generation_id),
    )


def _cannot_upgrade(group: Group, why: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    )


def _assigned(data: bytes, snapshot: MetadataSnapshot) -> Assignment:
    """What a classic leader dealt out, by topic id; nothing for one that has not synced yet."""
    if not data:
        return {}
    partitions, user_data = read_assignment(data)
    if user_data:
        raise ValueError(
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
            " assignor before re-attempting the upgrade"
        )
    return by_topic_id(partitions, snapshot)


# Down


def may_downgrade(
    group: ConsumerGroup, leaving: Collection[str], settings: ConsumerGroupSettings, joining_count: int = 0
) -> bool:
    """Whether the group, without those who leave, is to be a classic one.

    All the rest must speak the classic protocol, and have an assignor in common.
    """
    rest = [member for member in group.members.values() if member.member_id not in leaving]
    protocols = [{name for name, _ in member.classic.protocols} for member in rest if member.classic is not None]
    count = len(rest) + joining_count
    return (
        len(protocols) == len(rest)
        and settings.may_downgrade
        and 0 < count <= settings.classic_max_size
        and (not protocols or bool(set.intersection(*protocols)))
    )


def to_classic_group(
    group: ConsumerGroup,
    leaving: Collection[str],
    snapshot: MetadataSnapshot,
    now_ms: int,
    joining: Member | None = None,
    replaced_id: str | None = None,
) -> Group:
    """The classic group that goes on without those who leave; `joining` takes the place of the member `replaced_id`.

    It is Stable in the generation of the group's epoch, with the targets as assignments.
    """
    members = [
        _to_classic_member(member, by_name(group.target.get(member.member_id, NOTHING), snapshot))
        for member in group.members.values()
        if member.member_id not in leaving and member.member_id != replaced_id
    ]
    if joining is not None:
        target = group.target.get(replaced_id or joining.member_id, NOTHING)
        members.append(_to_classic_member(joining, by_name(target, snapshot)))
    members = without_replaced(members)
    gathered = Members()
    for member in members:
        gathered.add(member)
    return Group.from_log(
        group.group_id, group.epoch, CONSUMER_PROTOCOL_TYPE, gathered.select_protocol(), gathered.leader_id, now_ms,
        members,
    )  # fmt: skip


def _to_classic_member(member: Member, partitions: dict[str, frozenset[int]]) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id, member.instance_id, member.client_id, member.client_host, member.rebalance_timeout_ms,
        member.classic.session_timeout_ms, CONSUMER_PROTOCOL_TYPE, member.classic.protocols,
        write_assignment(partitions, answer_version(member.classic.protocols[0][1])),
    )  # fmt: skip


# Names and ids


def by_name(assignment: Assignment, snapshot: MetadataSnapshot) -> dict[str, frozenset[int]]:
    """The same by the names of topics, without those that are gone."""
    names = snapshot.topic_names
    return {names[topic_id]: partitions for topic_id, partitions in assignment.items() if topic_id in names}


def by_topic_id(partitions: Mapping[str, frozenset[int]], snapshot: MetadataSnapshot) -> Assignment:
    """The same by the ids of topics, without those that are gone."""
    topics = snapshot.topics
    return {topics[name].id: frozenset(ids) for name, ids in partitions.items() if name in topics and ids}
