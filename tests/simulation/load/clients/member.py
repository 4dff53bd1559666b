"""What members of groups have in common: they own partitions for a time, read them, and commit.

A member of either protocol reads from the committed offset, in the order of the log, and commits what it has read.
What it owns and commits goes into the group's journal.

Threads: a client has one task; the journal belongs to all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.checks.groups import GroupJournal
from tests.simulation.load.clients.client import GROUP, Address
from tests.simulation.load.clients.fetching import READ_COMMITTED, Fetcher

OFFSET_COMMIT_VERSION: Final = 9
OFFSET_FETCH_VERSION: Final = 9
SESSION_TIMEOUT_MS: Final = 10_000
REBALANCE_TIMEOUT_MS: Final = 15_000
HEARTBEAT_MS: Final = 2_000
#: In one of so many turns, a member is silent for longer than its session; in one of so many, its process ends.
SILENCES: Final = 30
ENDS: Final = 30
PROBES: Final = 15  # in one of so many turns, a member does what a member of an earlier epoch would do
SILENCE_S: Final = SESSION_TIMEOUT_MS / 1000 + 4

#: The errors that say that a member, or its generation, is not what the coordinator takes it for.
DISMISSED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class Member(Fetcher):
    """A member of a group that reads one topic."""

    def __init__(
        self, name: str, bootstrap: list[Address], group: str, topic: str, journal: GroupJournal,
        draw: Callable[[int], int], pause_s: float,
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap)
        self.group = group
        self.topic = topic
        self._journal = journal
        self._draw = draw  # a random number below its argument
        self._pause_s = pause_s
        self.member_id = ""
        self.epoch = -1  # the generation, or the member's epoch
        self.positions: dict[int, int] = {}  # of the partitions that it owns
        self._committed: dict[int, int] = {}
        self._heartbeat_due_ns = 0
        self._lives = 0  # processes that have ended
        self.is_undisturbed = False  # set by the driver: nothing but members themselves makes the group wait
        self.problems: list[str] = []

    def run(self) -> None:
        """Take part until it is asked to stop; then commit and leave."""
        while not self.is_stopping:
            self.take_part()
            if not self.is_calm:
                self._misbehave()
        self.commit()
        self.leave()
        self.close()

    def _misbehave(self) -> None:
        if not self._draw(SILENCES):
            self.wait(SILENCE_S)
            has_read, is_taken = bool(self._uncommitted()), self.commit()  # by a member that is none any more
            # Why only then: the next coordinator gives each member a whole session.
            if has_read and is_taken and self.is_undisturbed:
                self.problems.append(f"kept member: {self.name} committed after {SILENCE_S} s of silence")
        if not self._draw(ENDS):
            self.end()

    def take_part(self) -> None:
        """Send a heartbeat if it is due, or join; then read and commit."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the group."""
        raise NotImplementedError

    def end(self) -> None:
        """End as a process that is killed does; another one takes its place, as a new member."""
        self.give_up()
        self._lives += 1

    def is_due(self) -> bool:
        """Return whether it is time for a heartbeat; the next one is later."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._heartbeat_due_ns:
            return False
        self._heartbeat_due_ns = now_ns + HEARTBEAT_MS * 1_000_000
        return True

    def own(self, partitions: Collection[int]) -> None:
        """Own these partitions from now on, from their committed offsets."""
        for partition in set(self.positions) - set(partitions):
            del self.positions[partition]
        wanted = sorted(set(partitions) - set(self.positions))
        self._journal.claimed(self.name, self.epoch, partitions)
        if wanted:
            for partition, offset in self._committed_offsets(wanted).items():
                self.positions[partition] = self._committed[partition] = offset

    def give_up(self) -> None:
        """Own nothing any more."""
        self.positions.clear()

    def consume(self) -> None:
        """Read some of a partition, and sometimes commit."""
        if not self.positions:
            self.wait(self._pause_s)
            return
        partition = sorted(self.positions)[self._draw(len(self.positions))]
        fetched = self.fetch(self.topic, partition, self.positions[partition], READ_COMMITTED)
        if fetched is not None:
            self.problems += fetched.problems
            self._journal.consumed(self.name, partition, [got.offset for got in fetched.records])
            self.positions[partition] = fetched.next_offset
        if not self._draw(2):
            self.commit()
        self.wait(self._pause_s)

    def commit(self) -> bool:
        """Commit what was read; return whether the coordinator took it, or there was nothing."""
        changed = self._uncommitted()
        if not changed:
            return True
        commit = self._journal.committing(self.name, changed)
        answer = self._ask_to_commit(self.epoch, changed)
        if answer is None:
            return False
        error = next((each.error_code for each in answer.topics[0].partitions if each.error_code), 0)
        if error == ErrorCode.REQUEST_TIMED_OUT or error == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self.may_pass(error, "OffsetCommit")
            return False
        if error:
            self._journal.refused(commit)
            self.dismissed(error, "OffsetCommit")
            return False
        self._journal.confirmed(commit)
        self._committed.update(changed)
        return True

    def _uncommitted(self) -> dict[int, int]:
        """Return what was read and not committed."""
        return {
            partition: offset
            for partition, offset in self.positions.items()
            if self._committed.get(partition) != offset
        }

    def probe_commit(self, epoch: int, partition: int) -> None:
        """Commit in an epoch in which the member may not do so."""
        answer = self._ask_to_commit(epoch, {partition: 0})
        if answer is not None and not answer.topics[0].partitions[0].error_code:
            self.problems.append(
                f"old commit: {self.name} committed for partition {partition} in {epoch}, while it was in {self.epoch}"
            )

    def _ask_to_commit(self, epoch: int, offsets: Mapping[int, int]) -> Any:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=self.name
            )
            for partition, offset in sorted(offsets.items())
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=partitions)],
        )
        return self.ask_coordinator(GROUP, self.group, request, OFFSET_COMMIT_VERSION)

    def dismissed(self, error: int, what: str) -> bool:
        """Return whether an answer says that the member is none any more, or has to join again."""
        if error in DISMISSED:
            self.trouble = f"{self.name}: {what} was answered with {ErrorCode(error).name}"
            return True
        self.may_pass(error, what)
        return False

    def _committed_offsets(self, partitions: list[int]) -> dict[int, int]:
        """Return committed offsets; nothing if the coordinator does not know the member any more."""
        topic = OffsetFetchRequestTopics(name=self.topic, partition_indexes=partitions)
        is_new = self.is_new_protocol()
        group = OffsetFetchRequestGroup(
            group_id=self.group, member_id=self.member_id if is_new else None,
            member_epoch=self.epoch if is_new else -1, topics=[topic],
        )  # fmt: skip
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        while not self.is_stopping:
            asked = self._journal.asking()
            answer = self.ask_coordinator(GROUP, self.group, request, OFFSET_FETCH_VERSION)
            if answer is None:
                continue
            found = answer.groups[0]
            error = found.error_code or next(
                (each.error_code for each in (found.topics[0].partitions if found.topics else ()) if each.error_code), 0
            )
            if error:
                if self.dismissed(error, "OffsetFetch"):
                    return {}
                continue
            offsets = {each.partition_index: each.committed_offset for each in found.topics[0].partitions}
            self._journal.fetched(self.name, asked, offsets, self.coordinator(GROUP, self.group))
            return {partition: max(0, offset) for partition, offset in offsets.items()}
        return {}

    def is_new_protocol(self) -> bool:
        """Return whether it speaks the protocol of KIP-848."""
        raise NotImplementedError
