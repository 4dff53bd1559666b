"""Online migration between the protocols: a classic group becomes a consumer group, and back. Pure.

Theory
The first member of the consumer protocol that joins a classic group of consumers turns it into a consumer group. The
others continue in it as *classic members* (`classic_requests.py`): the generation becomes the epoch, assignments become
target assignments. When the last member of the consumer protocol leaves, the remaining ones form a classic group again.
`group.consumer.migration.policy` says which directions are allowed.

Source: Kafka's ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, GroupMetadataManager.convertTo* (4.3),
KIP-848 (migration).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from barnabas.broker.coordinators.classic.consumer_protocol import (
    answer_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.classic.members import CONSUMER_PROTOCOL_TYPE, Members, without_replaced
from barnabas.broker.coordinators.classic.members import Member as ClassicMember
from barnabas.broker.coordinators.consumer import values as v
from barnabas.broker.coordinators.consumer.environment import ConsumerGroupSettings
from barnabas.broker.coordinators.consumer.group import NOTHING, ConsumerGroup
from barnabas.broker.coordinators.consumer.metadata_watch import metadata_hash
from barnabas.broker.coordinators.consumer.values import Assignment, Member
from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError

log = logging.getLogger("barnabas.group")

# Up


def check_upgrade(group: Group, settings: ConsumerGroupSettings) -> None:
    """Raise ApiError(GROUP_ID_NOT_FOUND) unless the classic group may become a consumer group."""
    if not settings.may_upgrade:
        raise _cannot_upgrade(group, "online upgrade is disabled")
    if not group.uses_consumer_protocol:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > settings.max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size")


def to_consumer_group(group: Group, snapshot: MetadataSnapshot) -> tuple[ConsumerGroup, list[v.Record]]:
    """Return the consumer group that continues a classic one, and the records that create it.

    Raises ApiError(GROUP_ID_NOT_FOUND) if a member's subscription or assignment cannot be converted.
    """
    epoch = group.generation_id
    members = [_to_consumer_member(group, member, snapshot) for member in group.members.by_id.values()]
    names = {name for member in members for name in member.topic_names}
    records: list[v.Record] = [
        *(v.MemberMetadata(member.member_id, member) for member in members),
        v.GroupEpoch(epoch, metadata_hash(names, snapshot)),
        *(v.TargetAssignment(member.member_id, v.without_epochs(member.assigned)) for member in members),
        v.TargetEpoch(epoch),
        *(v.CurrentAssignment(member.member_id, member) for member in members),
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
        log.warning("The embedded consumer protocol of group %s is malformed: %s", group.group_id, error)
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
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
        classic=v.ClassicPart(member.session_timeout_ms, member.protocols),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=v.with_epochs(assigned, group.generation_id),
    )


def _cannot_upgrade(group: Group, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def _assigned(data: bytes, snapshot: MetadataSnapshot) -> Assignment:
    """Return the assignment that the classic leader made, by topic id; empty for a member that has not synced yet."""
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
    """Return whether the group becomes a classic one when these members leave.

    All remaining members must speak the classic protocol, and support a common assignor.
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
    """Return the classic group that continues without the leaving members; `joining` replaces the member `replaced_id`.

    It is Stable; its generation is the group's epoch, its assignments are the target assignments.
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
    """Return the assignment by topic name, without deleted topics."""
    names = snapshot.topic_names
    return {names[topic_id]: partitions for topic_id, partitions in assignment.items() if topic_id in names}


def by_topic_id(partitions: Mapping[str, frozenset[int]], snapshot: MetadataSnapshot) -> Assignment:
    """Return the assignment by topic id, without deleted topics."""
    topics = snapshot.topics
    return {topics[name].id: frozenset(ids) for name, ids in partitions.items() if name in topics and ids}
