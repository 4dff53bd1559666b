"""A shard: the groups and offsets of one partition of __consumer_offsets, and what requests ask of them.

Every public method takes the shard's lock (the mailbox), asks the pure parts, has the records written, and answers
through `reply` once the lock is released and the records are committed. `shard_core.py` holds the rules.

Threads: any.
Source: Kafka's GroupCoordinatorShard (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.broker.coordinators import group_events as ev
from barnabas.broker.coordinators import offset_records as records
from barnabas.broker.coordinators.consumer_group import ConsumerGroup
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.offsets import CommittedOffset, FetchedTopic, TopicWanted
from barnabas.broker.coordinators.shard_classic import ClassicInConsumerShard
from barnabas.broker.coordinators.shard_consumer import Committer
from barnabas.broker.coordinators.shard_core import ShardState, Write, nothing
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.transaction import Producer
    from barnabas.broker.coordinators.transaction_marker import Marker
    from barnabas.broker.storage.verification import VerificationGuard

__all__ = ["Committer", "ListedGroup", "OffsetCommit", "Shard"]

T = TypeVar("T")

GROUP_ID_NOT_FOUND_FROM = 9  # OffsetCommit version


class ListedGroup(NamedTuple):
    """What a list of groups has of one; the type is Kafka's name for it."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(slots=True, frozen=True)
class OffsetCommit:
    """A position to be committed."""

    topic: str
    partition: int
    committed: CommittedOffset


class Shard(ClassicInConsumerShard):
    """See the module."""

    # Members

    def join(self, group_id: str, event: ev.Join) -> None:
        """Handle a JoinGroup; `event.reply(JoinResult)` is called, maybe much later."""
        with self._mailbox:
            if error := self._gate_locked():
                self._say(event.reply, ev.JoinResult(error, event.member_id))
                return
            if event.member_id == ev.UNKNOWN_MEMBER_ID:
                self._end_empty_consumer_group_locked(group_id)
            group = self.groups.get(group_id)
            if group_id in self.consumer_groups:
                self._join_consumer_group_locked(group_id, event)
            elif group is not None:
                self._step_locked(group, event)
            elif event.member_id != ev.UNKNOWN_MEMBER_ID:
                self._say(event.reply, ev.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))
            else:
                self._create_group_locked(group_id, event)

    def _create_group_locked(self, group_id: str, event: ev.Join) -> None:
        now_ms = self._context.clock.wall_ms()
        group = self.groups[group_id] = Group(group_id, now_ms)
        self._step_locked(group, event)
        done = ev.EmptyStored(0, reply=event.reply)
        self._append_locked([records.new_group(group_id, now_ms)], nothing, partial(self._stored, group, done))

    def sync(self, group_id: str, event: ev.Sync) -> None:
        """Handle a SyncGroup; `event.reply(SyncResult)` is called, maybe later."""
        with self._mailbox:
            if error := self._gate_locked():
                self._say(event.reply, ev.SyncResult(error))
            elif group_id in self.consumer_groups:
                self._sync_consumer_group_locked(group_id, event)
            elif (group := self.groups.get(group_id)) is None:
                self._say(event.reply, ev.SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            else:
                self._step_locked(group, event)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handle a Heartbeat; while loading it is taken on trust."""
        with self._mailbox:
            if error := self._gate_locked():
                return ErrorCode.NONE if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
            if group_id in self.consumer_groups:
                return self._heartbeat_consumer_group_locked(group_id, member_id, instance_id, generation_id)
            group = self.groups.get(group_id)
            if group is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return self._ask_locked(group, ev.Heartbeat(member_id, instance_id, generation_id, None))

    def leave(self, group_id: str, event: ev.Leave) -> None:
        """Handle a LeaveGroup; `event.reply(LeaveResult)` is called once what it changes is written."""
        with self._mailbox:
            if error := self._gate_locked():
                self._say(event.reply, ev.LeaveResult(error))
            elif group_id in self.consumer_groups:
                self._leave_consumer_group_locked(group_id, event)
            elif (group := self.groups.get(group_id)) is None:
                unknown = tuple(
                    ev.LeftMember(m.member_id, m.instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for m in event.members
                )
                self._say(event.reply, ev.LeaveResult(ErrorCode.NONE, unknown))
            else:
                self._step_locked(group, event)

    # Offsets

    def commit_offsets(
        self, who: Committer, commits: Sequence[OffsetCommit], reply: Callable[[ErrorCode], object]
    ) -> None:
        """Commit positions; `reply(error)` is called once, with NONE when all are committed."""
        with self._mailbox:
            error = self._gate_locked() or self._commit_error_locked(who, commits)
            if error or not commits:
                self._say(reply, error)
                return
            group_id = who.group_id
            batch = [records.offset_commit(group_id, c.topic, c.partition, c.committed) for c in commits]
            self._append_locked(
                batch, partial(self._apply_commits, group_id, commits), lambda error: self._say(reply, error)
            )

    def commit_in_transaction(
        self,
        who: Committer,
        producer: Producer,
        commits: Sequence[OffsetCommit],
        guard: VerificationGuard | None,
        reply: Callable[[ErrorCode], object],
    ) -> None:
        """Have positions committed when the producer's transaction is; `reply(error)` is called once (KIP-447)."""
        with self._mailbox:
            error = self._gate_locked() or self._commit_error_locked(who, commits, is_transactional=True)
            if error or not commits:
                self._say(reply, error)
                return
            group_id = who.group_id
            batch = self._batch(
                [records.offset_commit(group_id, c.topic, c.partition, c.committed) for c in commits],
                producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True,
            )  # fmt: skip
            apply = partial(self._apply_pending, group_id, producer.producer_id, commits)
            write = Write(apply, lambda error: self._say(reply, error))
            self._append_batch_locked(batch, len(commits), write, guard=guard)

    def end_transaction(self, marker: Marker, timestamp_ms: int, reply: Callable[[ErrorCode], object]) -> None:
        """Write the marker of a transaction, and take over the positions that it commits, or drop them."""
        with self._mailbox:
            if error := self._gate_locked():
                self._say(reply, error)
                return
            write = Write(
                lambda _offset: self.offsets.end_transaction(marker.producer_id, marker.is_commit),
                lambda error: self._say(reply, error),
            )
            self._append_batch_locked(
                marker.batch(timestamp_ms), 1, write, transaction_version=marker.transaction_version
            )

    def _apply_pending(
        self, group_id: str, producer_id: int, commits: Sequence[OffsetCommit], first_offset: int
    ) -> None:
        self._ensure_group_locked(group_id)
        if self._context.sensors is not None:
            self._context.sensors.commits.record(len(commits))
        for index, commit in enumerate(commits):
            committed = commit.committed._replace(record_offset=first_offset + index)
            self.offsets.put_pending(producer_id, group_id, commit.topic, commit.partition, committed)

    def _commit_error_locked(
        self, who: Committer, commits: Sequence[OffsetCommit], *, is_transactional: bool = False
    ) -> ErrorCode:
        if self._is_any_of_a_former_topic(commits):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if who.group_id in self.consumer_groups:
            partitions = [(commit.committed.topic_id, commit.partition) for commit in commits]
            return self._consumer_commit_error_locked(who, partitions, is_transactional=is_transactional)
        group = self.groups.get(who.group_id)
        if group is not None:
            return self._ask_locked(
                group, ev.Commit(who.member_id, who.instance_id, who.generation_id, None, is_transactional)
            )
        if who.generation_id < 0:  # a simple consumer or an administrator: the first offset creates the group
            return ErrorCode.NONE
        is_new = who.version >= GROUP_ID_NOT_FOUND_FROM
        return ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.ILLEGAL_GENERATION

    def _is_any_of_a_former_topic(self, commits: Sequence[OffsetCommit]) -> bool:
        """Whether a topic was deleted while its commit was on its way here.

        Why under the lock: a position in a former topic must never follow one in the present topic in the log.
        """
        present_id = self._context.consumers.watch.topic_id
        return any(ZERO_UUID != c.committed.topic_id != present_id(c.topic) for c in commits)

    def _apply_commits(self, group_id: str, commits: Sequence[OffsetCommit], first_offset: int) -> None:
        self._ensure_group_locked(group_id)
        if self._context.sensors is not None:
            self._context.sensors.commits.record(len(commits))
        for index, commit in enumerate(commits):
            committed = commit.committed._replace(record_offset=first_offset + index)
            self.offsets.put(group_id, commit.topic, commit.partition, committed)

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[TopicWanted] | None,
        require_stable: bool,
        reply: Callable[[ErrorCode, list[FetchedTopic]], object],
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> None:
        """Tell positions; with `require_stable` after all writes before it are committed (KIP-447)."""
        with self._mailbox:
            if error := self._offset_gate_locked():
                self._mailbox.say(partial(reply, error, []))
                return
            if error := self._consumer_fetch_error_locked(group_id, member_id, member_epoch):
                self._mailbox.say(partial(reply, error, []))
                return
            if not (require_stable and self._writes):
                self._tell_offsets_locked(group_id, wanted, require_stable, reply)
                return
            self._after_last_write_locked(
                lambda error: (
                    self._mailbox.say(partial(reply, ErrorCode.NOT_COORDINATOR, []))
                    if error
                    else self._tell_offsets_locked(group_id, wanted, require_stable, reply)
                )
            )

    def _tell_offsets_locked(
        self,
        group_id: str,
        wanted: Sequence[TopicWanted] | None,
        require_stable: bool,
        reply: Callable[[ErrorCode, list[FetchedTopic]], object],
    ) -> None:
        known_id = group_id if self._any_group_locked(group_id) is not None else ""
        topics = self.offsets.fetch(
            known_id, wanted, require_stable=require_stable, present_id=self._context.consumers.watch.topic_id
        )
        self._mailbox.say(partial(reply, ErrorCode.NONE, topics))

    def _once_written_locked(self, then: Callable[[], None]) -> None:
        """Go on when all offsets on their way are stored, so that none escapes a deletion."""
        self._catch_up_locked()
        if self._writes:
            self._after_last_write_locked(lambda _error: then())
        else:
            then()

    def delete_offsets(
        self,
        group_id: str,
        topics: Mapping[str, Container[int]],
        reply: Callable[[ErrorCode, dict[str, ErrorCode]], object],
    ) -> None:
        """Remove positions; `reply(group's error, errors by topic)`: of topics that are subscribed to."""
        with self._mailbox:
            group = self._any_group_locked(group_id)
            error = self._offset_gate_locked()
            if not error:
                error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_error()
            if error or group is None:
                self._mailbox.say(partial(reply, error, {}))
            else:
                self._once_written_locked(partial(self._delete_offsets_locked, group, topics, reply))

    def _delete_offsets_locked(
        self,
        group: Group | ConsumerGroup,
        topics: Mapping[str, Container[int]],
        reply: Callable[[ErrorCode, dict[str, ErrorCode]], object],
    ) -> None:
        group_id = group.group_id
        errors = {name: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for name in topics if group.is_subscribed_to(name)}
        doomed = [
            (group_id, tp)
            for tp in self.offsets.all_partitions(group_id)
            if tp.partition in topics.get(tp.topic, ()) and tp.topic not in errors
        ]

        def settled(error: ErrorCode) -> None:
            if not error and self._context.sensors is not None:
                self._context.sensors.deletions.record(len(doomed))
            self._mailbox.say(partial(reply, error, {} if error else errors))

        self._remove_offsets_locked(doomed, [], settled)

    # Groups

    def listed(self, states: frozenset[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """The groups in these states (lower case; none: all)."""
        with self._mailbox:
            if error := self._gate_locked():
                return error, []
            return ErrorCode.NONE, [
                ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.TYPE)
                for group in self._all_groups_locked()
                if not states or group.state.value.lower() in states
            ]

    def describe(self, group_id: str, look: Callable[[Group], T]) -> tuple[ErrorCode, T | None]:
        """Let `look` read a group under the lock."""
        with self._mailbox:
            if error := self._gate_locked():
                return error, None
            group = self.groups.get(group_id)
            return (ErrorCode.GROUP_ID_NOT_FOUND, None) if group is None else (ErrorCode.NONE, look(group))

    def delete_groups(self, group_ids: Sequence[str], reply: Callable[[dict[str, ErrorCode]], object]) -> None:
        """Delete groups with their offsets; `reply(errors by group)`."""
        with self._mailbox:
            if error := self._offset_gate_locked():
                self._mailbox.say(partial(reply, dict.fromkeys(group_ids, error)))
            else:
                self._once_written_locked(partial(self._delete_groups_locked, group_ids, reply))

    def _delete_groups_locked(self, group_ids: Sequence[str], reply: Callable[[dict[str, ErrorCode]], object]) -> None:
        errors = {group_id: self._delete_error_locked(group_id) for group_id in group_ids}
        deleted = [group_id for group_id, error in errors.items() if not error]
        doomed = [(group_id, tp) for group_id in deleted for tp in self.offsets.all_partitions(group_id)]

        def settled(error: ErrorCode) -> None:
            if error:
                errors.update(dict.fromkeys(deleted, error))
            self._mailbox.say(partial(reply, errors))

        self._remove_offsets_locked(doomed, deleted, settled)

    def _delete_error_locked(self, group_id: str) -> ErrorCode:
        group = self._any_group_locked(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_error()

    def on_topics_replaced(self, former_ids: Mapping[str, bytes]) -> None:
        """Remove the positions in topics that are gone; see `_remove_former_locked`."""
        with self._mailbox:
            if self.state is ShardState.ACTIVE:
                self._remove_former_locked(former_ids)
