"""Changes of share partitions' state that a group's coordinator asks the share coordinators for.

Each change is three steps: records here, the requests to the share coordinators once these records are committed, and
records with the outcome. The shard's lock is held for the first and the last step only.

Rules
1. A partition's last request decides. The outcome of an earlier one changes nothing while another one is on its way.
2. The outcome counts if the group is still the same, and the shard still serves. Otherwise the next coordinator asks
   again.
3. Offsets are altered in a newer epoch, so that a leader that has the partitions in memory is fenced.
4. A partition whose state has a newer epoch than the group (the group's records were lost, say) stays among those to be
   initialised. So the group's epoch rises with every heartbeat, until it is the newer one.

Threads: owner is the shard, under its lock; every method wants it held. The persister answers on its own threads, and
the answers are posted to the shard.
Source: Kafka's GroupCoordinatorService (4.3): persisterInitialize, deleteShareGroups, deleteShareGroupOffsetsState.

Different from Apache Kafka: rules 3 and 4; each partition has its own outcome, where Kafka drops all if one fails; the
answer to an AlterShareGroupOffsets comes once the outcome is committed; a start offset below -1 is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from barnabas.broker.coordinators.share_groups import partitions as parts
from barnabas.broker.coordinators.share_groups import values as v
from barnabas.broker.coordinators.share_groups.group import EPOCH_MAX
from barnabas.broker.coordinators.share_groups.values import TopicPart
from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET, SharePartitionKey
from barnabas.broker.requests.gathering import Gathering
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.core import ShardCore
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_groups.environment import Environment
    from barnabas.broker.coordinators.share_groups.group import ShareGroup

log = logging.getLogger("barnabas.group")

Starts: TypeAlias = Mapping[bytes, Mapping[int, int]]  # topic id -> partition -> start offset
#: Outcomes after which a partition is still to be initialised, or is (rule 4).
KEPT: Final = frozenset({ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH})
Outcome: TypeAlias = dict[tuple[bytes, int], ErrorCode]  # by (topic id, partition)


class TopicOutcome(NamedTuple):
    """The outcome for a topic of a request; `errors` by partition is empty for a deletion."""

    name: str
    topic_id: bytes = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    errors: Mapping[int, ErrorCode] = {}


class Groups(Protocol):
    """The part of the shard's share groups that changes use."""

    groups: dict[str, ShareGroup]

    def find(self, group_id: str) -> ShareGroup:
        """Return the group. Raises ApiError(GROUP_ID_NOT_FOUND)."""

    def find_or_create(self, group_id: str) -> ShareGroup:
        """Return the group; a new one if no group has this id. Raises ApiError(GROUP_ID_NOT_FOUND)."""

    def environment(self, group_id: str) -> Environment:
        """Return the environment of a turn that is decided now."""

    def append(self, changes: Sequence[tuple[ShareGroup, Sequence[v.Record]]], settled: Completion[ErrorCode]) -> bool:
        """Append the records of groups as one batch and apply them; False, with `settled` posted, when refused."""


class StateChanges:
    """See the module."""

    __slots__ = ("_core", "_groups")

    def __init__(self, core: ShardCore, groups: Groups) -> None:
        self._core = core  # fixed before start
        self._groups = groups  # fixed before start

    # Initialisation

    def after_write(
        self, group: ShareGroup, epoch: int, starts: Starts, settled: Completion[ErrorCode]
    ) -> Completion[ErrorCode]:
        """Return what is to be called when a turn's records are committed: it initialises these partitions."""
        if not starts:
            return settled

        def written(error: ErrorCode) -> None:
            settled(error)
            self._initialize(group, epoch, starts, error, lambda _outcome: None)

        self._begin_attempts(group, starts)
        return written

    def alter_offsets(
        self,
        group_id: str,
        wanted: Mapping[str, Mapping[int, int]],
        reply: Completion[Sequence[TopicOutcome] | ApiError],
    ) -> None:
        """Initialise partitions at these offsets (topic name -> partition -> offset) in a group without members."""
        core = self._core
        try:
            group = self._groups.find_or_create(group_id)
            _check_empty(group)
            epoch = _next_epoch(group)
        except ApiError as refusal:
            core.answer_locked(reply, refusal)
            return
        topics = self._groups.environment(group_id).image.snapshot.topics
        refused: dict[str, dict[int, ErrorCode]] = {}
        starts: dict[bytes, dict[int, int]] = {}
        begun: dict[bytes, TopicPart] = {}
        for name, offsets in wanted.items():
            topic = topics.get(name)
            count = 0 if topic is None else len(topic.partitions)
            refused[name] = {p: error for p, offset in offsets.items() if (error := _alter_error(p, offset, count))}
            accepted = {p: offset for p, offset in offsets.items() if p not in refused[name]}
            if topic is not None and accepted:
                starts[topic.id] = accepted
                begun[topic.id] = TopicPart(name, frozenset(accepted))

        def finished(outcome: Outcome) -> None:
            results = []
            for name, offsets in wanted.items():
                topic_id = topics[name].id if name in topics else ZERO_UUID
                errors = {p: refused[name].get(p) or outcome.get((topic_id, p), ErrorCode.NONE) for p in offsets}
                results.append(TopicOutcome(name, topic_id, errors=errors))
            core.answer_locked(reply, results)

        if not starts:
            finished({})
            return
        self._begin_attempts(group, starts)
        self._groups.append(
            [(group, [epoch, v.StatePartitions(parts.begin_initializing(group.partitions, begun))])],
            lambda error: self._initialize(group, epoch.epoch or 0, starts, error, finished),
        )

    def _begin_attempts(self, group: ShareGroup, starts: Starts) -> None:
        group.attempts.update((topic_id, p) for topic_id, offsets in starts.items() for p in offsets)

    def _initialize(
        self, group: ShareGroup, epoch: int, starts: Starts, error: ErrorCode, finished: Completion[Outcome]
    ) -> None:
        """Ask the share coordinators, once the records are written; `error` says that they are not."""
        keys = [(topic_id, p) for topic_id, offsets in starts.items() for p in offsets]
        if error:
            self._end_attempts(group, keys)
            finished(dict.fromkeys(keys, error))
            return
        post = self._core.lock.post
        gathering: Gathering[tuple[bytes, int], ErrorCode] = Gathering(
            len(keys), lambda outcome: post(partial(self._initialized, group, outcome, finished))
        )
        persister = self._core.context.shares.persister
        for topic_id, p in keys:
            key = SharePartitionKey(group.group_id, topic_id, p)
            persister.initialize(key, epoch, starts[topic_id][p], partial(gathering.add, (topic_id, p)))

    def _end_attempts(self, group: ShareGroup, keys: Iterable[tuple[bytes, int]]) -> None:
        group.attempts.subtract(keys)
        group.attempts = +group.attempts
        group.changes += 1  # so that the next heartbeat looks again

    def _initialized(self, group: ShareGroup, outcome: Outcome, finished: Completion[Outcome]) -> None:
        self._end_attempts(group, list(outcome))
        if not self._is_current(group):
            finished(dict.fromkeys(outcome, ErrorCode.NOT_COORDINATOR))
            return
        last = {key: error for key, error in outcome.items() if key not in group.attempts}  # rule 1
        done = _by_topic(key for key, error in last.items() if not error)
        failed = _by_topic(key for key, error in last.items() if error not in KEPT)
        names = {error.name for error in last.values() if error}
        if names:
            count = sum(error != ErrorCode.NONE for error in last.values())
            log.warning("%d partitions of share group %s are not initialised: %s", count, group.group_id, sorted(names))

        def written(error: ErrorCode) -> None:
            finished({key: found or error for key, found in outcome.items()})

        after = parts.end_initializing(group.partitions, done, failed)
        if after == group.partitions:
            self._core.writes.after_all(written)
        else:
            self._groups.append([(group, [v.StatePartitions(after)])], written)

    # Deletion

    def delete_states(self, group_ids: Collection[str], finished: Completion[dict[str, ErrorCode]]) -> None:
        """Delete the state of groups without members; `finished`, with the lock held, gets the errors of those kept."""
        errors: dict[str, ErrorCode] = {}
        changes: list[tuple[ShareGroup, list[v.Record]]] = []
        doomed: list[SharePartitionKey] = []
        for group_id in group_ids:
            group = self._groups.groups[group_id]
            if error := group.change_error():
                errors[group_id] = error
            elif not group.partitions.is_empty:
                known = group.partitions
                topic_ids = [*known.initializing, *known.initialized, *known.deleting]
                changes.append((group, [v.StatePartitions(parts.begin_deleting(known, topic_ids))]))
                doomed += self._keys(group, topic_ids)

        def deleted(outcome: Mapping[SharePartitionKey, ErrorCode]) -> None:
            for key, error in outcome.items():
                if error and not self._is_of_deleted_topic(key, error):
                    errors[key.group_id] = error
            for group_id in group_ids:
                errors.setdefault(group_id, self._error_after_deletion(group_id))
            finished({group_id: error for group_id, error in errors.items() if error})

        self._delete(changes, doomed, deleted)

    def _is_of_deleted_topic(self, key: SharePartitionKey, error: ErrorCode) -> bool:
        """Whether nothing is left to delete, since the topic was deleted while no coordinator had the group."""
        is_unknown = key.topic_id not in self._groups.environment(key.group_id).image.snapshot.topic_names
        return is_unknown and error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _error_after_deletion(self, group_id: str) -> ErrorCode:
        """Return why a group is kept although its state was deleted: members have come meanwhile."""
        if not self._core.life.is_active:
            return ErrorCode.NOT_COORDINATOR
        group = self._groups.groups.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()

    def delete_offsets(
        self, group_id: str, names: Collection[str], reply: Completion[Sequence[TopicOutcome] | ApiError]
    ) -> None:
        """Delete the state of topics in a group without members."""
        core = self._core
        try:
            group = self._groups.find(group_id)
            _check_empty(group)
        except ApiError as refusal:
            core.answer_locked(reply, refusal)
            return
        topics = self._groups.environment(group_id).image.snapshot.topics
        results: dict[str, TopicOutcome] = {}
        topic_ids: dict[bytes, str] = {}
        for name in names:
            topic = topics.get(name)
            results[name] = _delete_refusal(group, name, None if topic is None else topic.id)
            if topic is not None and not results[name].error:
                topic_ids[topic.id] = name
        doomed = self._keys(group, topic_ids)
        changes = [(group, [v.StatePartitions(parts.begin_deleting(group.partitions, topic_ids))])] if topic_ids else []

        def deleted(outcome: Mapping[SharePartitionKey, ErrorCode]) -> None:
            for key, error in outcome.items():
                if error:
                    name = topic_ids.pop(key.topic_id, None)
                    if name is not None:
                        results[name] = TopicOutcome(name, key.topic_id, error, error.message)
            self._end_deleting(group, topic_ids, answered)

        def answered(error: ErrorCode) -> None:
            core.answer_locked(reply, ApiError(error) if error else list(results.values()))

        self._delete(changes, doomed, deleted)

    def _end_deleting(self, group: ShareGroup, topic_ids: Collection[bytes], settled: Completion[ErrorCode]) -> None:
        if not self._is_current(group):
            settled(ErrorCode.NOT_COORDINATOR)
            return
        after = parts.end_deleting(group.partitions, topic_ids)
        if after == group.partitions:
            self._core.writes.after_all(settled)
        else:
            self._groups.append([(group, [v.StatePartitions(after)])], settled)

    def _delete(
        self,
        changes: Sequence[tuple[ShareGroup, Sequence[v.Record]]],
        doomed: Sequence[SharePartitionKey],
        finished: Completion[Mapping[SharePartitionKey, ErrorCode]],
    ) -> None:
        """Write the records, then have the state of the partitions deleted; `finished` with the lock held."""
        core = self._core

        def written(error: ErrorCode) -> None:
            if error:
                finished(dict.fromkeys(doomed, error))
                return
            gathering: Gathering[SharePartitionKey, ErrorCode] = Gathering(
                len(doomed), lambda outcome: core.lock.post(partial(finished, outcome))
            )
            for key in doomed:
                # Why only while this shard serves: the next coordinator may initialise the partition meanwhile.
                core.context.shares.persister.delete(key, partial(gathering.add, key), lambda: core.life.is_active)

        if changes:
            self._groups.append(changes, written)
        else:
            core.writes.after_all(written)

    def _keys(self, group: ShareGroup, topic_ids: Iterable[bytes]) -> list[SharePartitionKey]:
        """Return the share partitions of these topics; all that exist, where a deletion was begun before."""
        snapshot = self._groups.environment(group.group_id).image.snapshot
        found = parts.all_partitions(group.partitions, topic_ids)
        for topic_id in found:
            if topic_id in group.partitions.deleting and topic_id in snapshot.topic_names:
                count = len(snapshot.topics[snapshot.topic_names[topic_id]].partitions)
                found[topic_id] |= frozenset(range(count))
        return [SharePartitionKey(group.group_id, topic_id, p) for topic_id in found for p in sorted(found[topic_id])]

    # Both

    def _is_current(self, group: ShareGroup) -> bool:
        return self._core.life.is_active and self._groups.groups.get(group.group_id) is group  # rule 2


def _check_empty(group: ShareGroup) -> None:
    if error := group.change_error():
        raise ApiError(error, f"Share group {group.group_id} is not empty.")


def _next_epoch(group: ShareGroup) -> v.GroupEpoch:
    """Return the record of the group's next epoch. Raises ApiError."""
    if group.epoch >= EPOCH_MAX:  # only another program's record can hold it
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The epoch of group {group.group_id} cannot go up further.")
    return v.GroupEpoch(group.epoch + 1, group.metadata_hash)


def _alter_error(partition: int, offset: int, count: int) -> ErrorCode:
    if not 0 <= partition < count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if offset >= NO_START_OFFSET else ErrorCode.INVALID_REQUEST


def _delete_refusal(group: ShareGroup, name: str, topic_id: bytes | None) -> TopicOutcome:
    """Return why a topic's state cannot be deleted; no error if it can."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_id is None:
        return TopicOutcome(name, error=unknown, message=unknown.message)
    known = group.partitions
    if topic_id in known.initialized or topic_id in known.initializing or topic_id in known.deleting:
        return TopicOutcome(name, topic_id)
    return TopicOutcome(name, error=unknown, message="There is no offset information to delete.")


def _by_topic(keys: Iterable[tuple[bytes, int]]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in keys:
        found.setdefault(topic_id, set()).add(partition)
    return found
