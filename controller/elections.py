"""Elections: from a partition's state and what is wanted of it to the one record that brings it there, or none.

Rules
1. A clean election takes a leader from the target ISR only, and keeps the current leader while it is acceptable.
2. PREFERRED takes the first replica of the assignment if that is possible, else acts like rule 1.
3. UNCLEAN takes, when rule 1 finds nobody, the first acceptable replica, or else one whose log directory is gone and
   whose broker has another now; the ISR becomes that replica alone and the partition is marked RECOVERING: records
   that only others had are lost.
4. The ISR never becomes empty: when its last member goes, the partition is leaderless and that member stays in the
   ISR, for it alone has every acknowledged record.
5. Naming a leader (even the same one) starts a new leader epoch; so does a replica's removal from the assignment.
6. A reassignment is complete once every remaining replica is in the ISR.
7. A replica in a directory that its broker does not have (it failed, or was replaced) is not acceptable, even as the
   last member of the ISR: an emptied disk must not pass for the data. Its directory changes when the broker says so
   (directories.py), or when it joins the ISR again, which proves that it has the data.

Threads: none; pure functions.

Different from Apache Kafka: eligible leader replicas (KIP-966) are not kept; this is Kafka with
`eligible.leader.replicas.version=0`.

Source: PartitionChangeBuilder, PartitionReassignmentReplicas, ReplicationControlManager.generateLeaderAndIsrUpdates
(Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.controller.decision import View
from barnabas.controller.image import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    Image,
    Partition,
    PartitionKey,
)
from barnabas.protocol.metadata_records import PartitionChangeRecord

NO_BROKER: Final = -1

Acceptable = Callable[[int], bool]


class Election(Enum):
    """How far an election may go (rules 1 to 3)."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class Target:
    """What a partition should become; None leaves a part as it is."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovery_state: int | None = None
    election: Election = Election.ONLINE
    directories: Mapping[int, bytes] | None = None  # of some replicas; the others keep theirs


@dataclass(slots=True)
class _Plan:
    """The parts of a target, all known."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]


def leader_acceptor(image: Image, partition: Partition, is_acceptable: Acceptable | None = None) -> Acceptable:
    """Who may lead the partition: active brokers whose log directory of that partition is online."""
    acceptable = image.is_active if is_acceptable is None else is_acceptable

    def test(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and acceptable(broker_id) and broker.has_online_dir(partition.directory(broker_id))

    return test


def last_resort(image: Image, is_acceptable: Acceptable | None = None) -> Acceptable:
    """Whom an unclean election may take when nobody's directory is there: brokers that have a single, other one."""
    acceptable = image.is_active if is_acceptable is None else is_acceptable

    def test(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and acceptable(broker_id) and len(broker.log_dirs) == 1

    return test


def change_partition(
    image: Image, key: PartitionKey, partition: Partition, target: Target, is_acceptable: Acceptable | None = None
) -> PartitionChangeRecord | None:
    """`next_partition` with the brokers of the image; `is_acceptable` says who is active if the image does not."""
    record = next_partition(
        key,
        partition,
        target,
        leader_acceptor(image, partition, is_acceptable),
        last_resort(image, is_acceptable),
    )
    leader = NO_LEADER if record is None else record.leader
    broker = image.brokers.get(leader)
    if record is not None and broker is not None and not broker.has_online_dir(partition.directory(leader)):
        directories = {**(target.directories or {}), leader: default_directory(image, leader)}
        record.directories = _directories(partition, target.replicas or partition.replicas, directories)
    return record


def default_directory(image: Image, broker_id: int) -> bytes:
    """Where a replica is that nobody has told of: in the broker's only directory, else unassigned."""
    broker = image.brokers.get(broker_id)
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def next_partition(
    key: PartitionKey,
    partition: Partition,
    target: Target,
    is_acceptable: Acceptable,
    is_last_resort: Acceptable = lambda _: False,
) -> PartitionChangeRecord | None:
    """The record that moves `partition` to `target`, electing a leader if one is needed; None when nothing changes."""
    plan = _completed(
        _Plan(
            isr=partition.isr if target.isr is None else target.isr,
            replicas=partition.replicas if target.replicas is None else target.replicas,
            removing=partition.removing if target.removing is None else target.removing,
            adding=partition.adding if target.adding is None else target.adding,
        )
    )
    record = PartitionChangeRecord(partition_id=key.partition, topic_id=key.topic_id)
    leader, is_unclean = elect(partition, plan.isr, plan.replicas, target.election, is_acceptable, is_last_resort)
    if leader != partition.leader:
        record.leader = leader
        if is_unclean:
            record.isr = [leader]
            if partition.recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
    elif not set(partition.replicas) <= set(plan.replicas):
        record.leader = partition.leader  # rule 5
    if record.isr is None and plan.isr and plan.isr != partition.isr:  # rule 4
        record.isr = list(plan.isr)
    _set_assignment(record, partition, plan, target.directories or {})
    if target.recovery_state is not None and target.recovery_state != partition.recovery_state:
        record.leader_recovery_state = target.recovery_state
    return None if _is_nothing(record) else record


def elect(
    partition: Partition,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    election: Election,
    is_acceptable: Acceptable,
    is_last_resort: Acceptable = lambda _: False,
) -> tuple[int, bool]:
    """The leader to have (NO_LEADER if there can be none), and whether taking it loses data (rules 1 to 3)."""

    def is_clean(broker_id: int) -> bool:
        return broker_id in isr and is_acceptable(broker_id)

    if election is Election.PREFERRED and replicas and is_clean(replicas[0]):
        return replicas[0], False
    if is_clean(partition.leader):
        return partition.leader, False
    for replica in replicas:
        if is_clean(replica):
            return replica, False
    if election is Election.UNCLEAN:
        for is_possible in (is_acceptable, is_last_resort):
            for replica in replicas:
                if is_possible(replica):
                    return replica, True
    return NO_LEADER, False


def _completed(plan: _Plan) -> _Plan:
    """The plan with its reassignment finished, if it can be (rule 6)."""
    if not plan.removing and not plan.adding:
        return plan
    isr = tuple(r for r in plan.isr if r not in plan.removing)
    replicas = tuple(r for r in plan.replicas if r not in plan.removing)
    if not isr or not replicas or not set(replicas) <= set(isr):
        return plan
    return _Plan(isr, replicas, (), ())


def _set_assignment(
    record: PartitionChangeRecord, partition: Partition, plan: _Plan, directories: Mapping[int, bytes]
) -> None:
    if plan.replicas != partition.replicas:
        record.replicas = list(plan.replicas)
    if partition.directories or directories:
        current = [partition.directory(replica) for replica in partition.replicas]
        wanted = _directories(partition, plan.replicas, directories)
        if wanted != current:
            record.directories = wanted
    if plan.removing != partition.removing:
        record.removing_replicas = list(plan.removing)
    if plan.adding != partition.adding:
        record.adding_replicas = list(plan.adding)


def _directories(partition: Partition, replicas: Iterable[int], changed: Mapping[int, bytes]) -> list[bytes]:
    return [changed.get(replica, partition.directory(replica)) for replica in replicas]


def _is_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == NO_RECOVERY_CHANGE
        and record.directories is None
    )


# -- elections over many partitions


def partitions_with_isr_member(image: Image, broker_id: int) -> Iterable[PartitionKey]:
    """Every partition that has the broker in its ISR."""
    return [PartitionKey(t.id, i) for t, i, p in image.each_partition() if broker_id in p.isr]


def leaderless_partitions(image: Image) -> Iterable[PartitionKey]:
    """Every partition without a leader."""
    return [PartitionKey(t.id, i) for t, i, p in image.each_partition() if p.leader == NO_LEADER]


def imbalanced_partitions(image: Image) -> Iterable[PartitionKey]:
    """Every partition that is led by another than its preferred replica."""
    return [PartitionKey(t.id, i) for t, i, p in image.each_partition() if p.leader != p.preferred_leader]


def leader_and_isr_updates(
    view: View, keys: Iterable[PartitionKey], *, broker_to_remove: int = NO_BROKER, broker_to_add: int = NO_BROKER
) -> list[PartitionChangeRecord]:
    """Changes that take one broker out of the ISRs, or let one lead that the image still shows as fenced."""
    image = view.image

    def is_acceptable(broker_id: int) -> bool:
        return broker_id != broker_to_remove and (broker_id == broker_to_add or image.is_active(broker_id))

    records = []
    for key in keys:
        topic = image.topics[key.topic_id]
        partition = topic.partitions[key.partition]
        unclean = view.unclean_election_enabled(topic.name)
        target = Target(
            isr=tuple(r for r in partition.isr if r != broker_to_remove),
            election=Election.UNCLEAN if unclean else Election.ONLINE,
        )
        record = change_partition(image, key, partition, target, is_acceptable)
        if record is not None:
            records.append(record)
    return records


def preferred_leader_updates(view: View, max_elections: int) -> list[PartitionChangeRecord]:
    """Elections that bring leadership back to preferred replicas that are in their ISRs, at most so many."""
    records: list[PartitionChangeRecord] = []
    for key in imbalanced_partitions(view.image):
        if len(records) >= max_elections:
            break
        partition = view.image.topics[key.topic_id].partitions[key.partition]
        record = change_partition(view.image, key, partition, Target(election=Election.PREFERRED))
        if record is not None:
            records.append(record)
    return records


def unclean_updates(view: View, max_elections: int) -> list[PartitionChangeRecord]:
    """Elections, at any price, for leaderless partitions of topics that allow it, at most so many."""
    records: list[PartitionChangeRecord] = []
    for key in leaderless_partitions(view.image):
        if len(records) >= max_elections:
            break
        topic = view.image.topics[key.topic_id]
        if not view.unclean_election_enabled(topic.name):
            continue
        partition = topic.partitions[key.partition]
        record = change_partition(view.image, key, partition, Target(election=Election.UNCLEAN))
        if record is not None:
            records.append(record)
    return records
