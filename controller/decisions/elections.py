"""Elections: the record that moves a partition from its state to a target state, if the two differ.

Rules
1. A clean election takes a leader from the target ISR only. It keeps the current leader while that is acceptable.
2. PREFERRED takes the first replica of the assignment if possible. Otherwise rule 1 applies.
3. If rule 1 finds no leader, UNCLEAN takes the first acceptable replica. If there is none, it takes a replica whose log
   directory is gone and whose broker has another directory now. The ISR becomes that replica alone, and the partition
   is marked RECOVERING. Records that only other replicas had are lost.
4. Without rule 8, the ISR never becomes empty. If its last member leaves, the partition has no leader. The member stays
   in the ISR, since it alone has every acknowledged record. It goes only if it leaves the assignment, too, and a former
   ELR is left.
5. A record that names a leader (even the same one) starts a new leader epoch. The removal of a replica from the
   assignment does so too.
6. A reassignment is complete once every remaining replica is in the ISR.
7. A replica is not acceptable if its broker no longer has its directory (it failed, or was replaced). This holds even
   for the last member of the ISR, since an emptied disk does not have the data. The directory of a replica changes if
   the broker reports it (directories.py). It also changes if the replica joins the ISR again, since it then has the
   data.
8. With eligible leader replicas (KIP-966; `min_isr` is not None): while the ISR is smaller than min.insync.replicas,
   the leader's high watermark stands still. So a replica that leaves such an ISR has every acknowledged record, and
   joins the ELR. It stays there until the ISR is large enough, it joins the ISR, or its broker registers after an
   unclean shutdown, in which it may have lost records. If the ISR is empty, a member of the ELR is elected, which is
   clean.
9. The last leader of a partition without a leader is noted. It is elected once ISR and ELR are empty and it is back: an
   unclean election, but no other replica can have more records.

Threads: none; pure functions.

Different from Apache Kafka, for rules 8 and 9: `min_isr` is at most the partition's own number of replicas, as its
leader counts; Kafka counts those of partition 0. A replica that is not in the assignment leaves the ELR. An election
from the ELR empties the ELR if the new ISR is large enough. If the last member of an ISR leaves a partition that had no
leader, it counts as the last leader. If the feature is disabled, a partition without a leader keeps its ELR.

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
    """The kinds of elections (rules 1 to 3)."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class Target:
    """The state that a partition should get; None keeps a part as it is."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    recovery_state: int | None = None
    election: Election = Election.ONLINE
    directories: Mapping[int, bytes] | None = None  # by broker id, of some replicas; the others keep theirs
    without_data: frozenset[int] = frozenset()  # replicas that may have lost records, so they cannot join the ELR


@dataclass(slots=True)
class _Plan:
    """A target without gaps."""

    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    elr: tuple[int, ...]


def leader_acceptor(image: Image, partition: Partition, is_acceptable: Acceptable | None = None) -> Acceptable:
    """Return the test for leaders of a partition: the broker is active and its directory of the partition is online."""
    acceptable = image.is_active if is_acceptable is None else is_acceptable

    def test(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and acceptable(broker_id) and broker.has_online_dir(partition.directory(broker_id))

    return test


def last_resort(image: Image, is_acceptable: Acceptable | None = None) -> Acceptable:
    """Return the test for the last resort of rule 3: the broker is active and has a single log directory."""
    acceptable = image.is_active if is_acceptable is None else is_acceptable

    def test(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and acceptable(broker_id) and len(broker.log_dirs) == 1

    return test


def change_partition(
    view: View, key: PartitionKey, partition: Partition, target: Target, is_acceptable: Acceptable | None = None
) -> PartitionChangeRecord | None:
    """Return `next_partition` for the brokers of the image; `is_acceptable` replaces the image's test for activity."""
    image = view.image
    record = next_partition(
        key,
        partition,
        target,
        leader_acceptor(image, partition, is_acceptable),
        last_resort(image, is_acceptable),
        view.min_insync_replicas(image.topics[key.topic_id].name) if image.has_elr else None,
    )
    leader = NO_LEADER if record is None else record.leader
    broker = image.brokers.get(leader)
    if record is not None and broker is not None and not broker.has_online_dir(partition.directory(leader)):
        directories = {**(target.directories or {}), leader: default_directory(image, leader)}
        record.directories = _directories(partition, target.replicas or partition.replicas, directories)
    return record


def default_directory(image: Image, broker_id: int) -> bytes:
    """Return the directory of a replica that the broker has not reported: its only directory, else unassigned."""
    broker = image.brokers.get(broker_id)
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def next_partition(
    key: PartitionKey,
    partition: Partition,
    target: Target,
    is_acceptable: Acceptable,
    is_last_resort: Acceptable = lambda _: False,
    min_isr: int | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that moves `partition` to `target`, with a new leader if needed; None if nothing changes.

    `min_isr`: min.insync.replicas of the topic; None without eligible leader replicas (rule 8).
    """
    plan = _completed(
        _Plan(
            isr=partition.isr if target.isr is None else target.isr,
            replicas=partition.replicas if target.replicas is None else target.replicas,
            removing=partition.removing if target.removing is None else target.removing,
            adding=partition.adding if target.adding is None else target.adding,
            elr=(),
        )
    )
    plan.elr = _next_elr(partition, plan, min_isr, target.without_data)
    record = PartitionChangeRecord(partition_id=key.partition, topic_id=key.topic_id)
    leader, is_unclean = elect(
        partition, plan.isr, plan.replicas, target.election, is_acceptable, is_last_resort, plan.elr
    )
    _set_leader(record, partition, plan, leader, is_unclean=is_unclean)
    _set_elr(record, partition, plan, min_isr)
    may_write = plan.isr or min_isr is not None or not set(partition.isr) <= set(plan.replicas)  # rule 4
    if record.isr is None and may_write and plan.isr != partition.isr:
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
    elr: tuple[int, ...] = (),
) -> tuple[int, bool]:
    """Return the leader (NO_LEADER if there is none) and whether its election is unclean (rules 1 to 3, 8 and 9)."""
    eligible = isr or elr

    def is_clean(broker_id: int) -> bool:
        return broker_id in eligible and is_acceptable(broker_id)

    if election is Election.PREFERRED and replicas and is_clean(replicas[0]):
        return replicas[0], False
    for broker_id in (partition.leader, *replicas):
        if is_clean(broker_id):
            return broker_id, False
    if not eligible and _can_lead_again(partition, replicas, is_acceptable):
        return partition.last_known_elr[0], True
    if election is Election.UNCLEAN:
        for is_possible in (is_acceptable, is_last_resort):
            for replica in replicas:
                if is_possible(replica):
                    return replica, True
    return NO_LEADER, False


def _can_lead_again(partition: Partition, replicas: tuple[int, ...], is_acceptable: Acceptable) -> bool:
    """Return whether the last leader is known and back (rule 9)."""
    last = partition.last_known_elr
    return len(last) == 1 and last[0] in replicas and is_acceptable(last[0])


def _next_elr(partition: Partition, plan: _Plan, min_isr: int | None, without_data: frozenset[int]) -> tuple[int, ...]:
    """Return the ELR before the election (rule 8). Without rule 8 a former ELR remains until there is a leader."""
    if min_isr is None:
        members = set() if plan.isr else set(partition.elr)
    elif _is_large(plan, min_isr):
        members = set()
    else:
        members = {*partition.elr, *partition.isr}
    return tuple(sorted((members & set(plan.replicas)) - set(plan.isr) - without_data))


def _is_large(plan: _Plan, min_isr: int) -> bool:
    return len(plan.isr) >= min(min_isr, len(plan.replicas))


def _set_leader(
    record: PartitionChangeRecord, partition: Partition, plan: _Plan, leader: int, *, is_unclean: bool
) -> None:
    if leader in plan.elr:
        plan.isr = (leader,)
    if leader == partition.leader:
        if not set(partition.replicas) <= set(plan.replicas):
            record.leader = partition.leader  # rule 5
        return
    record.leader = leader
    if is_unclean:
        record.isr = [leader]
        if partition.recovery_state != RECOVERING:
            record.leader_recovery_state = RECOVERING


def _set_elr(record: PartitionChangeRecord, partition: Partition, plan: _Plan, min_isr: int | None) -> None:
    """Set the ELR and the last leader after the election (rules 8 and 9)."""
    elr: tuple[int, ...] = ()
    if record.isr is None:
        remains = not plan.isr if min_isr is None else not _is_large(plan, min_isr)
        elr = tuple(replica for replica in plan.elr if remains and replica not in plan.isr)
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    last = partition.last_known_elr
    if (partition.leader if record.leader == NO_LEADER_CHANGE else record.leader) != NO_LEADER:
        last = ()
    elif min_isr is not None and not last:
        if partition.leader != NO_LEADER:
            last = (partition.leader,)
        elif not plan.isr and len(partition.isr) == 1:
            last = partition.isr
    if last != partition.last_known_elr:
        record.last_known_elr = list(last)


def _completed(plan: _Plan) -> _Plan:
    """Return the plan with its reassignment completed, if rule 6 allows it."""
    if not plan.removing and not plan.adding:
        return plan
    isr = tuple(r for r in plan.isr if r not in plan.removing)
    replicas = tuple(r for r in plan.replicas if r not in plan.removing)
    if not isr or not replicas or not set(replicas) <= set(isr):
        return plan
    return _Plan(isr, replicas, (), (), ())


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
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )


# -- elections over many partitions


def partitions_with_isr_member(image: Image, broker_id: int) -> list[PartitionKey]:
    """Return every partition that has the broker in its ISR."""
    return [PartitionKey(t.id, i) for t, i, p in image.each_partition() if broker_id in p.isr]


def partitions_with_elr_member(image: Image, broker_id: int) -> list[PartitionKey]:
    """Return every partition that has the broker in its ELR."""
    return [PartitionKey(t.id, i) for t, i, p in image.each_partition() if broker_id in p.elr]


def leaderless_partitions(image: Image) -> list[PartitionKey]:
    """Return every partition without a leader."""
    return [PartitionKey(t.id, i) for t, i, p in image.each_partition() if p.leader == NO_LEADER]


def imbalanced_partitions(image: Image) -> list[PartitionKey]:
    """Return every partition whose leader is not its preferred replica."""
    return [PartitionKey(t.id, i) for t, i, p in image.each_partition() if p.leader != p.preferred_leader]


def leader_and_isr_updates(
    view: View,
    keys: Iterable[PartitionKey],
    *,
    broker_to_remove: int = NO_BROKER,
    broker_to_add: int = NO_BROKER,
    is_unclean_shutdown: bool = False,
) -> list[PartitionChangeRecord]:
    """Return the changes after a broker leaves or returns.

    `broker_to_remove` leaves the ISRs and leaderships, and after an unclean shutdown the ELRs. `broker_to_add` may lead
    although the image shows it as fenced.
    """
    image = view.image
    without_data = frozenset({broker_to_remove} if is_unclean_shutdown else ())

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
            without_data=without_data,
        )
        record = change_partition(view, key, partition, target, is_acceptable)
        if record is not None:
            records.append(record)
    return records


def preferred_leader_updates(view: View, max_elections: int) -> list[PartitionChangeRecord]:
    """Return at most `max_elections` changes that give leadership back to preferred replicas in the ISR."""
    return _elections(view, imbalanced_partitions(view.image), Election.PREFERRED, max_elections)


def unclean_updates(view: View, max_elections: int) -> list[PartitionChangeRecord]:
    """Return at most `max_elections` unclean elections, for leaderless partitions of topics that allow them."""
    topics = view.image.topics
    keys = (
        key for key in leaderless_partitions(view.image) if view.unclean_election_enabled(topics[key.topic_id].name)
    )
    return _elections(view, keys, Election.UNCLEAN, max_elections)


def _elections(
    view: View, keys: Iterable[PartitionKey], election: Election, max_elections: int
) -> list[PartitionChangeRecord]:
    records: list[PartitionChangeRecord] = []
    for key in keys:
        if len(records) >= max_elections:
            break
        partition = view.image.topics[key.topic_id].partitions[key.partition]
        record = change_partition(view, key, partition, Target(election=election))
        if record is not None:
            records.append(record)
    return records
