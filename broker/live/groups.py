"""The groups and transactions that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from barnabas.broker.coordinators.classic.group import Group as ClassicGroup
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.consumer.values import Member as ConsumerMember
from barnabas.broker.coordinators.groups.waiting import (
    classic_sentence,
    consumer_sentence,
    share_sentence,
    streams_sentence,
    tasks_in_words,
)
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.values import NO_TOPOLOGY_EPOCH
from barnabas.broker.coordinators.streams_groups.values import Member as StreamsMember
from barnabas.broker.coordinators.transactions.transaction import TxnState
from barnabas.metrics.client_ids import bounded

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.broker.live.look import Look
    from barnabas.common.pages.live_shape import Group, Listed, Member, Transaction

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup

OPEN: Final = frozenset({TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})


def groups(coordinator: GroupCoordinator, look: Look) -> Listed:
    """Return the groups, by id."""
    found: list[tuple[str, int, AnyGroup]] = []
    for shard in coordinator.shards():
        here: list[AnyGroup] = [
            *shard.groups.values(), *shard.consumer_groups.values(), *shard.share_groups.values(),
            *shard.streams_groups.values(),
        ]  # fmt: skip
        found += [(g.group_id, shard.tp.partition, g) for g in here if look.group in (None, g.group_id)]
    found.sort(key=lambda item: item[0])
    shown = [_group(coordinator, group, partition, look) for _, partition, group in found[: look.limit]]
    return look.some(shown, len(found))


def _group(coordinator: GroupCoordinator, group: AnyGroup, partition: int, look: Look) -> Group:
    if isinstance(group, ClassicGroup):
        return _classic(coordinator, group, partition, look)
    if isinstance(group, ShareGroup):
        return _share(group, partition, look)
    return _consumer(group, partition, look) if isinstance(group, ConsumerGroup) else _streams(group, partition, look)


def _classic(coordinator: GroupCoordinator, group: ClassicGroup, partition: int, look: Look) -> Group:
    members: list[Member] = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": bounded(member.client_id),
            "host": member.client_host.lstrip("/"),
            "epoch": group.generation_id,
            "state": "joining" if member.awaiting_join else "syncing" if member.awaiting_sync else "member",
        }
        for member in list(group.members.by_id.values())
    ]
    since = group.state_timestamp_ms
    return {
        "group_id": group.group_id,
        "type": "classic",
        "state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol": group.protocol_name or "",
        "generation": group.generation_id,
        "leader": group.members.leader_id or "",
        "coordinator_partition": partition,
        "since_ms": -1 if since is None else max(0, look.wall_ms - since),
        "members": look.some(members),
        "sentence": classic_sentence(group, look.wall_ms, coordinator.initial_delay_ms),
    }


def _consumer(group: ConsumerGroup, partition: int, look: Look) -> Group:
    members = [_member(member) for member in list(group.members.values())]
    return _reconciled(group, "consumer", partition, look.some(members), consumer_sentence(group))


def _streams(group: StreamsGroup, partition: int, look: Look) -> Group:
    found = list(group.members.values())
    members: list[Member] = [{**_member(member), "tasks": tasks_in_words(member)} for member in found[: look.limit]]
    topology = group.topology
    shown = _reconciled(group, "streams", partition, look.some(members, len(found)), streams_sentence(group))
    return {**shown, "topology_epoch": NO_TOPOLOGY_EPOCH if topology is None else topology.epoch}


def _member(member: ConsumerMember | StreamsMember) -> Member:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": bounded(member.client_id),
        "host": member.client_host.lstrip("/"),
        "epoch": member.epoch,
        "state": member.state.name.lower(),
    }


def _reconciled(
    group: ConsumerGroup | StreamsGroup,
    kind: Literal["consumer", "streams"],
    partition: int,
    members: Listed,
    sentence: str,
) -> Group:
    return {
        "group_id": group.group_id,
        "type": kind,
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol": "",
        "generation": group.epoch,
        "leader": "",
        "coordinator_partition": partition,
        "since_ms": -1,
        "members": members,
        "sentence": sentence,
    }


def _share(group: ShareGroup, partition: int, look: Look) -> Group:
    members: list[Member] = [
        {
            "member_id": member.member_id,
            "instance_id": None,
            "client_id": bounded(member.client_id),
            "host": member.client_host.lstrip("/"),
            "epoch": member.epoch,
            "state": "stable" if member.epoch == group.assignment_epoch else "reconciling",
        }
        for member in list(group.members.values())
    ]
    return {
        "group_id": group.group_id,
        "type": "share",
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol": "",
        "generation": group.epoch,
        "leader": "",
        "coordinator_partition": partition,
        "since_ms": -1,
        "members": look.some(members),
        "sentence": share_sentence(group),
    }


def transactions(coordinator: TransactionCoordinator, look: Look) -> Listed:
    """Return the open transactions, oldest first."""
    found = [(transactional_id, data) for transactional_id, data in coordinator.look() if data.state in OPEN]
    found.sort(key=lambda item: item[1].start_ms)
    shown: list[Transaction] = [
        {
            "transactional_id": transactional_id,
            "state": data.state.value,
            "producer_id": data.producer_id,
            "producer_epoch": data.producer_epoch,
            "age_ms": max(0, look.wall_ms - data.start_ms) if data.start_ms >= 0 else -1,
            "timeout_ms": data.timeout_ms,
            "partitions": [str(tp) for tp in sorted(data.partitions)[: look.limit]],
        }
        for transactional_id, data in found[: look.limit]
    ]
    return look.some(shown, len(found))
