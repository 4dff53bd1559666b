"""The groups and transactions that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.classic.group import Group as ClassicGroup
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.groups.waiting import classic_sentence, consumer_sentence
from barnabas.broker.coordinators.transactions.transaction import TxnState
from barnabas.common.pages.live_shape import Group, Listed, Member, Transaction

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.broker.live.look import Look

OPEN: Final = frozenset({TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})


def groups(coordinator: GroupCoordinator, look: Look) -> Listed:
    """Return the groups, by id."""
    found: list[tuple[str, int, ClassicGroup | ConsumerGroup]] = []
    for shard in coordinator.shards():
        here: list[ClassicGroup | ConsumerGroup] = [*shard.groups.values(), *shard.consumer_groups.values()]
        found += [(g.group_id, shard.tp.partition, g) for g in here if look.group in (None, g.group_id)]
    found.sort(key=lambda item: item[0])
    shown = [
        _classic(coordinator, group, partition, look)
        if isinstance(group, ClassicGroup)
        else _consumer(group, partition, look)
        for _, partition, group in found[: look.limit]
    ]
    return look.some(shown, len(found))


def _classic(coordinator: GroupCoordinator, group: ClassicGroup, partition: int, look: Look) -> Group:
    members: list[Member] = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
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
    members: list[Member] = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.client_host.lstrip("/"),
            "epoch": member.epoch,
            "state": member.state.name.lower(),
        }
        for member in list(group.members.values())
    ]
    return {
        "group_id": group.group_id,
        "type": "consumer",
        "state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol": "",
        "generation": group.epoch,
        "leader": "",
        "coordinator_partition": partition,
        "since_ms": -1,
        "members": look.some(members),
        "sentence": consumer_sentence(group),
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
