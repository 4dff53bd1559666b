"""The committed offsets of a shard's groups: requests about them, and their removal.

A commit takes effect once the high watermark has passed it. Until then it is on its way, and no tombstone of an older
offset that has expired, or whose topic was deleted, may follow it in the log: it would remove the newer offset.

Threads: owner is the shard, under its lock; every method wants it held.
Source: Kafka's OffsetMetadataManager (4.3); KIP-447 (transactional commits, stable offsets), KIP-211 (expiry).
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.groups.core import log_failure
from barnabas.broker.coordinators.offsets import records
from barnabas.broker.coordinators.offsets.store import CommittedOffset, FetchedTopic, OffsetStore, TopicQuery
from barnabas.broker.coordinators.runtime.committed_writes import ANY_OWNER
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.coordinators.consumer.group import ConsumerGroup
    from barnabas.broker.coordinators.groups.classic_groups import ClassicGroups
    from barnabas.broker.coordinators.groups.consumer_groups import ConsumerGroups
    from barnabas.broker.coordinators.groups.core import ShardCore
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_groups.groups import ShareGroups
    from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
    from barnabas.broker.coordinators.streams_groups.groups import StreamsGroups
    from barnabas.broker.coordinators.transactions.marker import Marker
    from barnabas.broker.coordinators.transactions.transaction import Producer
    from barnabas.broker.storage.producers.verification import VerificationGuard

log = logging.getLogger("barnabas.group")

AnyOffsetGroup: TypeAlias = "Group | ConsumerGroup | StreamsGroup"

GROUP_ID_NOT_FOUND_FROM = 9  # OffsetCommit version
BATCH_BYTES_MAX: Final = 64 * 1024  # of the keys in a batch of tombstones; below any sensible max.message.bytes


@dataclass(slots=True, frozen=True)
class Committer:
    """The client that commits offsets, as its request names itself."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int  # the member epoch in a consumer group; negative: not a member
    version: int  # of the request


@dataclass(slots=True, frozen=True)
class OffsetCommit:
    """An offset to commit."""

    topic: str
    partition: int
    committed: CommittedOffset


class OffsetQuery(NamedTuple):
    """A request for a group's offsets; `topics` None asks for all."""

    group_id: str
    topics: Sequence[TopicQuery] | None
    require_stable: bool  # answer after the group's earlier commits, and their transactions' ends (KIP-447)
    member_id: str | None = None  # of a consumer group; None: not a member
    member_epoch: int = -1


@dataclass(slots=True, frozen=True)
class FetchedOffsets:
    """The answer to an OffsetQuery; no topics with an error."""

    error: ErrorCode
    topics: Sequence[FetchedTopic] = ()


@dataclass(slots=True, frozen=True)
class DeletedOffsets:
    """The answer to a deletion of offsets: the group's error, and the errors of topics that kept their offsets."""

    error: ErrorCode
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)  # by topic


class _Removal(NamedTuple):
    """One batch of tombstones, and what it removes."""

    tombstones: list[records.KeyValue]
    offsets: list[tuple[str, TopicPartition]]
    groups: list[str]


class GroupOffsets:
    """The offsets of all groups of a shard."""

    __slots__ = (
        "_busy", "_classic", "_consumers", "_core", "_former_ids", "_markers_on_their_way", "_on_their_way", "_shares",
        "_streams", "store",
    )  # fmt: skip

    def __init__(
        self,
        core: ShardCore,
        classic: ClassicGroups,
        consumers: ConsumerGroups,
        shares: ShareGroups,
        streams: StreamsGroups,
    ) -> None:
        self._core = core  # fixed before start
        self._classic = classic  # fixed before start
        self._consumers = consumers  # fixed before start
        self._shares = shares  # fixed before start
        self._streams = streams  # fixed before start
        self.store = OffsetStore()  # replaced whole when the shard ends
        #: The commits that are in the log and not in the store yet, each with its group; in log order.
        self._on_their_way: deque[tuple[str, Sequence[OffsetCommit]]] = deque()
        self._busy: Counter[str] = Counter()  # the number of commits on their way, by group
        self._markers_on_their_way = 0
        self._former_ids: dict[str, bytes] = {}  # what `remove_former` has to look at again

    # Life

    def replay(self, record: records.OffsetRecord, producer_id: int, record_offset: int, is_committed: bool) -> None:
        """Apply a record while loading; `producer_id` is -1 outside transactions. Only the loader calls."""
        group_id, topic, partition, committed = record
        if committed is None:
            change = partial(self.store.remove, group_id, topic, partition)
        elif producer_id < 0:
            change = partial(self.store.put, group_id, topic, partition, committed)
        else:
            change = partial(self.store.put_pending, producer_id, group_id, topic, partition, committed)
        if committed is not None:
            self._ensure_group(group_id)
            if not is_committed:
                self._set_out(group_id, [OffsetCommit(topic, partition, committed)])
                change = partial(self._apply_loaded, change)
        self._once_committed(change, record_offset, is_committed, group_id)

    def _apply_loaded(self, change: Callable[[], object]) -> None:
        self._arrive()
        change()

    def replay_marker(self, producer_id: int, is_commit: bool, record_offset: int, is_committed: bool) -> None:
        """Apply the end of a transaction while loading. Only the loader calls."""
        end = partial(self.store.end_transaction, producer_id, is_commit)
        self._once_committed(end, record_offset, is_committed, ANY_OWNER)

    def _once_committed(self, change: Callable[[], object], record_offset: int, is_committed: bool, owner: str) -> None:
        if is_committed:
            change()
        else:
            self._core.writes.add_loaded(record_offset, change, owner)

    def release(self) -> None:
        """Drop all offsets."""
        self.store = OffsetStore()
        self._on_their_way.clear()
        self._busy.clear()
        self._markers_on_their_way = 0

    # Commits

    def commit(self, committer: Committer, commits: Sequence[OffsetCommit], reply: Completion[ErrorCode]) -> None:
        """Commit offsets; answered with NONE when all are committed."""
        core = self._core
        error = self._commit_error(committer, commits)
        if error or not commits:
            core.answer_locked(reply, error)
            return
        group_id = committer.group_id
        batch = [records.offset_commit(group_id, c.topic, c.partition, c.committed) for c in commits]
        apply = partial(self._apply_commits, group_id, commits)
        self._set_out(group_id, commits)
        if not core.append_locked(batch, apply, partial(core.answer_locked, reply)):
            self._take_back()

    def commit_in_transaction(
        self,
        committer: Committer,
        producer: Producer,
        commits: Sequence[OffsetCommit],
        guard: VerificationGuard | None,
        reply: Completion[ErrorCode],
    ) -> None:
        """Write offsets that are committed with the producer's transaction (KIP-447)."""
        core = self._core
        error = self._commit_error(committer, commits, is_transactional=True)
        if error or not commits:
            core.answer_locked(reply, error)
            return
        group_id = committer.group_id
        batch = core.batch(
            [records.offset_commit(group_id, c.topic, c.partition, c.committed) for c in commits],
            producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True,
        )  # fmt: skip
        apply = partial(self._apply_pending, group_id, producer.producer_id, commits)
        self._set_out(group_id, commits)
        if not core.append_batch_locked(batch, len(commits), apply, partial(core.answer_locked, reply), guard=guard):
            self._take_back()

    def end_transaction(self, marker: Marker, timestamp_ms: int, reply: Completion[ErrorCode]) -> None:
        """Write the marker of a transaction; its offsets are committed or dropped with it."""
        core = self._core
        self._markers_on_their_way += 1
        if not core.append_batch_locked(
            marker.batch(timestamp_ms), 1, partial(self._apply_marker, marker),
            partial(core.answer_locked, reply), transaction_version=marker.transaction_version,
        ):  # fmt: skip
            self._markers_on_their_way -= 1

    def _apply_marker(self, marker: Marker, _offset: int) -> None:
        self._markers_on_their_way -= 1
        self.store.end_transaction(marker.producer_id, marker.is_commit)

    def _apply_commits(self, group_id: str, commits: Sequence[OffsetCommit], first_offset: int) -> None:
        self._begin_apply(group_id, len(commits))
        for index, commit in enumerate(commits):
            committed = commit.committed._replace(record_offset=first_offset + index)
            self.store.put(group_id, commit.topic, commit.partition, committed)

    def _apply_pending(
        self, group_id: str, producer_id: int, commits: Sequence[OffsetCommit], first_offset: int
    ) -> None:
        self._begin_apply(group_id, len(commits))
        for index, commit in enumerate(commits):
            committed = commit.committed._replace(record_offset=first_offset + index)
            self.store.put_pending(producer_id, group_id, commit.topic, commit.partition, committed)

    def _set_out(self, group_id: str, commits: Sequence[OffsetCommit]) -> None:
        self._on_their_way.append((group_id, commits))
        self._busy[group_id] += 1

    def _arrive(self) -> None:
        self._no_longer_busy(self._on_their_way.popleft()[0])

    def _take_back(self) -> None:
        self._no_longer_busy(self._on_their_way.pop()[0])

    def _no_longer_busy(self, group_id: str) -> None:
        self._busy[group_id] -= 1
        if not self._busy[group_id]:
            del self._busy[group_id]

    def _begin_apply(self, group_id: str, count: int) -> None:
        self._arrive()
        self._ensure_group(group_id)
        self._core.context.sensors.commits.record(count)

    def _commit_error(
        self, committer: Committer, commits: Sequence[OffsetCommit], *, is_transactional: bool = False
    ) -> ErrorCode:
        c = committer
        if self._has_former_topic(commits):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if c.group_id in self._consumers.groups:
            partitions = [(commit.committed.topic_id, commit.partition) for commit in commits]
            return self._consumers.commit_error(
                c.group_id, c.member_id, c.instance_id, c.generation_id, c.version, partitions,
                is_transactional=is_transactional,
            )  # fmt: skip
        if c.group_id in self._streams.groups:
            return self._streams.commit_error(
                c.group_id, c.member_id, c.instance_id, c.generation_id, c.version,
                [(commit.topic, commit.partition) for commit in commits], is_transactional=is_transactional,
            )  # fmt: skip
        if c.group_id in self._shares.groups:
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = self._classic.groups.get(c.group_id)
        if group is not None:
            return self._classic.ask(
                group, ev.Commit(c.member_id, c.instance_id, c.generation_id, None, is_transactional)
            )
        if c.generation_id < 0:  # a simple consumer or an administrator: the first offset creates the group
            return ErrorCode.NONE
        is_new = c.version >= GROUP_ID_NOT_FOUND_FROM
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION

    def _has_former_topic(self, commits: Sequence[OffsetCommit]) -> bool:
        """Return whether a topic was deleted while its commit was on the way.

        Why under the lock: in the log, an offset of a deleted topic must never follow one of its successor's.
        """
        current_id = self._core.context.consumers.watch.topic_id
        return any(ZERO_UUID != c.committed.topic_id != current_id(c.topic) for c in commits)

    # Fetches

    def fetch(self, query: OffsetQuery, reply: Completion[FetchedOffsets]) -> None:
        """Answer with a group's offsets."""
        core = self._core
        member = (query.group_id, query.member_id, query.member_epoch)
        if error := self._consumers.fetch_error(*member) or self._streams.fetch_error(*member):
            core.answer_locked(reply, FetchedOffsets(error))
        elif query.require_stable and (
            query.group_id in self._busy
            or (self._markers_on_their_way and self.store.has_open_transactions(query.group_id))
        ):
            core.writes.after_all(partial(self._fetch_stable, query, reply))
        else:
            self._fetch_now(query, reply)

    def _fetch_stable(self, query: OffsetQuery, reply: Completion[FetchedOffsets], error: ErrorCode) -> None:
        if error:
            self._core.answer_locked(reply, FetchedOffsets(ErrorCode.NOT_COORDINATOR))
        else:
            self._fetch_now(query, reply)

    def _fetch_now(self, query: OffsetQuery, reply: Completion[FetchedOffsets]) -> None:
        store = self.store if self.find_group(query.group_id) is not None else OffsetStore()  # no group, no offsets
        topics = store.fetch(
            query.group_id, query.topics, require_stable=query.require_stable,
            current_id=self._core.context.consumers.watch.topic_id,
        )  # fmt: skip
        self._core.answer_locked(reply, FetchedOffsets(ErrorCode.NONE, topics))

    # Deletions

    def delete(self, group_id: str, topics: Mapping[str, Container[int]], reply: Completion[DeletedOffsets]) -> None:
        """Delete a group's offsets of these partitions, except those of topics that the group is subscribed to."""
        group = self.find_group(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
        if error or group is None:
            self._core.answer_locked(reply, DeletedOffsets(error))
        else:
            # Why after the writes so far: an offset that is still being committed must not escape the deletion.
            self._core.writes.after_all(partial(self._delete, group, topics, reply))

    def _delete(
        self,
        group: AnyOffsetGroup,
        topics: Mapping[str, Container[int]],
        reply: Completion[DeletedOffsets],
        error: ErrorCode,
    ) -> None:
        core, group_id = self._core, group.group_id
        if error:
            core.answer_locked(reply, DeletedOffsets(error))
            return
        errors = {name: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for name in topics if group.is_subscribed_to(name)}
        doomed = [
            (group_id, tp)
            for tp in self.store.all_partitions(group_id)
            if tp.partition in topics.get(tp.topic, ()) and tp.topic not in errors
        ]

        def settled(error: ErrorCode) -> None:
            if not error:
                core.context.sensors.deletions.record(len(doomed))
            core.answer_locked(reply, DeletedOffsets(error, {} if error else errors))

        self.remove(doomed, [], settled)

    def delete_groups(self, group_ids: Sequence[str], reply: Completion[Mapping[str, ErrorCode]]) -> None:
        """Delete groups with their offsets; answered with the error of each group."""
        self._core.writes.after_all(partial(self._delete_groups, group_ids, reply))

    def _delete_groups(
        self, group_ids: Sequence[str], reply: Completion[Mapping[str, ErrorCode]], error: ErrorCode
    ) -> None:
        if error:
            self._core.answer_locked(reply, dict.fromkeys(group_ids, error))
            return
        errors = {group_id: self._delete_error(group_id) for group_id in group_ids}
        deleted = [group_id for group_id, error in errors.items() if not error]
        doomed = [(group_id, tp) for group_id in deleted for tp in self.store.all_partitions(group_id)]

        def settled(error: ErrorCode) -> None:
            if error:
                errors.update(dict.fromkeys(deleted, error))
            self._core.answer_locked(reply, errors)

        self.remove(doomed, deleted, settled)

    def _delete_error(self, group_id: str) -> ErrorCode:
        group = self._shares.groups.get(group_id) or self.find_group(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()

    def remove_former(self, former_ids: Mapping[str, bytes]) -> None:
        """Remove the offsets that belong to deleted topics of these names.

        `former_ids` maps each name to the id of the topic that had it until now; ZERO_UUID if there was none, or it is
        unknown. An offset without an id goes with the former topic. A partition that also has an offset of the current
        topic (of an open transaction, or on its way) is left alone, since a tombstone would remove both. Offsets of the
        former topic are never served anyway.
        """
        # Why after the writes so far: those on their way may belong to the deleted topics. Later ones do not.
        self._core.writes.after_all(partial(self._remove_former, former_ids))

    def _remove_former(self, former_ids: Mapping[str, bytes], error: ErrorCode) -> None:
        on_their_way = self._partitions_on_their_way()
        if error:  # those on their way are not known to be of the current topics: the next `expire` looks again
            for name in former_ids.keys() & {tp.topic for _, tp in on_their_way}:
                if former_ids[name] != ZERO_UUID or name not in self._former_ids:
                    self._former_ids[name] = former_ids[name]
        current_ids = self._core.context.consumers.watch.topic_id
        doomed = []
        for (group_id, tp), topic_ids in self.store.of_topics(former_ids.keys()).items():
            if (group_id, tp) in on_their_way:
                continue
            former_id, current_id = former_ids[tp.topic], current_ids(tp.topic)
            if current_id == ZERO_UUID:
                is_former = former_id != ZERO_UUID
            else:
                is_former = current_id not in topic_ids and (former_id != ZERO_UUID or ZERO_UUID not in topic_ids)
            if is_former:
                doomed.append((group_id, tp))
        if doomed:
            log.info("Removing %d offsets of %s in topics that were deleted", len(doomed), self._core.tp)
        self.remove(doomed, [], log_failure)

    def expire(self) -> None:
        """Remove expired offsets, and groups that have neither members nor offsets left."""
        core = self._core
        core.writes.catch_up()
        former_ids, self._former_ids = self._former_ids, {}
        if former_ids:
            self.remove_former(former_ids)
        on_their_way = self._partitions_on_their_way()
        now_ms = core.now_ms()
        doomed: list[tuple[str, TopicPartition]] = []
        empty: list[str] = []
        groups: list[AnyOffsetGroup] = [
            *self._classic.groups.values(), *self._consumers.groups.values(), *self._streams.groups.values()
        ]  # fmt: skip
        for group in groups:
            due, is_all = self.store.expired(group, now_ms, core.context.retention_ms)
            doomed += [(group.group_id, tp) for tp in due if (group.group_id, tp) not in on_their_way]
            if is_all and group.is_idle and group.group_id not in self._busy:
                empty.append(group.group_id)
        if doomed or empty:
            log.info("Removing %d expired offsets and %d groups of %s", len(doomed), len(empty), core.tp)
            core.context.sensors.expirations.record(len(doomed))
            self.remove(doomed, empty, log_failure)

    def _partitions_on_their_way(self) -> set[tuple[str, TopicPartition]]:
        return {
            (group_id, TopicPartition(commit.topic, commit.partition))
            for group_id, commits in self._on_their_way
            for commit in commits
        }

    def remove(
        self,
        doomed: Sequence[tuple[str, TopicPartition]],
        deleted_groups: Iterable[str],
        settled: Completion[ErrorCode],
    ) -> None:
        """Write tombstones; groups are dropped at once, offsets when their tombstones are committed.

        Many tombstones become several batches, since the log refuses a batch that is too large. They do not depend on
        each other: if the log refuses one, what was written before it is removed.
        """
        removals = self._removals(doomed, deleted_groups)
        errors: list[ErrorCode] = []  # of the batches that were handed to the log; each is reported after this call
        count = 0

        def batch_settled(error: ErrorCode) -> None:
            errors.append(error)
            if len(errors) == count:
                settled(next((error for error in errors if error), ErrorCode.NONE))

        for removal in removals:
            count += 1
            if not self._core.append_locked(removal.tombstones, partial(self._removed, removal.offsets), batch_settled):
                break
            for group_id in removal.groups:
                self._core.timers.stop_group(group_id)
                self._part_of(group_id).forget(group_id)
        if not removals:
            settled(ErrorCode.NONE)

    def _removed(self, offsets: Sequence[tuple[str, TopicPartition]], _first_offset: int) -> None:
        for group_id, tp in offsets:
            self.store.remove(group_id, tp.topic, tp.partition)

    def _removals(self, doomed: Sequence[tuple[str, TopicPartition]], deleted_groups: Iterable[str]) -> list[_Removal]:
        """Return the batches that remove these offsets, and then these groups."""
        removals: list[_Removal] = []
        size = BATCH_BYTES_MAX

        def batch_for(tombstones: Sequence[records.KeyValue]) -> _Removal:
            nonlocal size
            more = sum(len(key) for key, _ in tombstones)
            if size + more > BATCH_BYTES_MAX:
                removals.append(_Removal([], [], []))
                size = 0
            size += more
            removals[-1].tombstones.extend(tombstones)
            return removals[-1]

        for group_id, tp in doomed:
            batch_for([records.offset_tombstone(group_id, tp.topic, tp.partition)]).offsets.append((group_id, tp))
        for group_id in deleted_groups:
            batch_for(self._part_of(group_id).tombstones(group_id)).groups.append(group_id)
        return removals

    # Groups

    def find_group(self, group_id: str) -> AnyOffsetGroup | None:
        """Return the group, of one of the kinds that commit offsets."""
        parts = (self._classic, self._consumers, self._streams)
        return next((part.groups[group_id] for part in parts if group_id in part.groups), None)

    def _part_of(self, group_id: str) -> ClassicGroups | ConsumerGroups | ShareGroups | StreamsGroups:
        parts = (self._shares, self._consumers, self._streams)
        return next((part for part in parts if group_id in part.groups), self._classic)

    def _ensure_group(self, group_id: str) -> None:
        if self._part_of(group_id) is self._classic:
            self._classic.ensure(group_id)
