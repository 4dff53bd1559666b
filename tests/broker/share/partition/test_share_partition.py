"""SharePartition: its stages, and random histories with members, writes that fail and leaders that move."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.broker.coordinators.share_state.batches import combine
from barnabas.broker.coordinators.share_state.values import ARCHIVED, AVAILABLE, SharePartitionKey, StateBatch
from barnabas.broker.share.partition import phases
from barnabas.broker.share.partition.share_partition import (
    NOT_ACTIVE,
    STAGES,
    SharePartition,
    Stage,
    StageEvent,
)
from barnabas.broker.share.partition.values import (
    Acknowledgement,
    AcquireMode,
    Fetcher,
    Limits,
    Refusal,
    Span,
    Update,
)
from tests.broker.share.partition.rig import count_complete

KEY = SharePartitionKey("g", bytes(16), 0)
LIMITS = Limits(lock_duration_ms=100, delivery_count=4, in_flight=60)

# A row for each stage, a column for each event: the next stage, or "." for none.
TABLE = """
          BEGIN    LOADED  FAIL    FENCE
EMPTY     LOADING  .       .       FENCED
LOADING   .        ACTIVE  FAILED  FENCED
ACTIVE    .        .       .       FENCED
FAILED    .        .       .       FENCED
FENCED    .        .       .       FENCED
"""
LINES = [line.split() for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("row", LINES[1:], ids=lambda row: row[0])
def test_what_an_event_makes_of_a_stage(row: list[str]) -> None:
    for event, expected in zip(LINES[0], row[1:], strict=True):
        found = STAGES.get((Stage[row[0]], StageEvent[event]))
        assert found == (None if expected == "." else Stage[expected]), event


def test_the_table_of_stages_has_every_cell() -> None:
    assert {row[0] for row in LINES[1:]} == {stage.name for stage in Stage}
    assert set(LINES[0]) == {event.name for event in StageEvent}


def test_only_an_active_partition_does_anything() -> None:
    partition = SharePartition(KEY, 5)
    assert partition.begin()
    assert not partition.begin()
    assert not partition.can_acquire(LIMITS)
    assert partition.acquire(Fetcher("m", 9, 9), 0, [Span(0, 9)], [], LIMITS, 0) == []
    assert partition.acknowledge("m", [], LIMITS, 0) == NOT_ACTIVE
    assert partition.release("m", LIMITS) is None
    assert partition.expire(LIMITS, 0) is None
    assert partition.next_deadline_ms() is None


def test_it_is_loaded_once_and_not_after_it_was_fenced() -> None:
    partition = SharePartition(KEY, 5)
    partition.begin()
    partition.fence()
    assert not partition.loaded(1, 0, [])
    assert partition.stage is Stage.FENCED


def test_the_start_moves_past_what_was_done_before() -> None:
    partition = SharePartition(KEY, 5)
    partition.begin()
    partition.loaded(7, 3, [StateBatch(3, 9, ARCHIVED, 1), StateBatch(10, 19, AVAILABLE, 2)])
    assert partition.state_epoch == 7
    assert partition.state.start_offset == 10
    assert partition.next_fetch_offset() == 10


@pytest.mark.parametrize(
    "kept",
    [
        [StateBatch(2, 9, 0, 1)],
        [StateBatch(5, 4, 0, 1)],
        [StateBatch(5, 9, 1, 1)],
        [StateBatch(5, 9, 0, 1), StateBatch(9, 12, 0, 1)],
        [StateBatch(10, 12, 0, 1), StateBatch(5, 9, 0, 1)],
    ],
)
def test_state_that_cannot_be_is_refused(kept: list[StateBatch]) -> None:
    partition = SharePartition(KEY, 5)
    partition.begin()
    with pytest.raises(ValueError, match="StateBatch"):
        partition.loaded(1, 3, kept)
    assert partition.stage is Stage.FAILED


def test_what_members_hold() -> None:
    partition = SharePartition(KEY, 5)
    partition.begin()
    partition.loaded(1, 0, [])
    partition.acquire(Fetcher("m", 9, 500), 0, [Span(0, 4)], [], LIMITS, 7)
    assert [tuple(holding) for holding in partition.holdings()] == [("m", 0, 4, 1, 107)]


class History:
    """A log, a share coordinator that may fail, members, and leaders that come and go, all by chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.log_start = 0
        self.log: list[Span] = []
        self.aborted: set[Span] = set()  # those of the log whose transactions were aborted
        self.end = 0
        self.kept: tuple[StateBatch, ...] = ()
        self.kept_start = 0
        self.writes: list[Update] = []
        self.accepting: dict[int, Update] = {}
        self.accepted: Counter[int] = Counter()
        self.archived: set[int] = set()
        self.held: dict[int, str] = {}
        self.partition = self.new_leader()

    def new_leader(self) -> SharePartition:
        """Load what was kept; the writes of the former leader are done or not."""
        for update in self.writes:
            if self.random.random() < 0.5:
                self.keep(update)
        self.writes = []
        self.held = {}
        partition = SharePartition(KEY, 0)
        partition.begin()
        assert partition.loaded(1, self.kept_start, self.kept)
        return partition

    @property
    def start(self) -> int:
        return self.partition.state.start_offset

    def append(self) -> None:
        size = self.random.randint(1, 9)
        if self.random.random() < 0.9:  # else compaction has removed it
            self.log.append(Span(self.end, self.end + size - 1))
            if self.random.random() < 0.1:
                self.aborted.add(self.log[-1])
        self.end += size

    def fetch(self, offset: int, most: int) -> list[Span]:
        """Read some record batches from an offset on; at least as many as are wanted, if they are there."""
        found = [span for span in self.log if span.last >= offset]
        if not found:
            return []
        wanted = self.partition.wanted_end(max(offset, found[0].first), most, LIMITS)
        enough = sum(1 for span in found if span.first <= wanted)
        return found[: self.random.randint(enough, len(found))]

    def acquire(self, member: str) -> int:
        """Let a member fetch; return how many offsets it got."""
        if not self.partition.can_acquire(LIMITS):
            return 0
        offset = self.partition.next_fetch_offset()
        if offset < self.log_start:
            self.partition.move_log_start(self.log_start)
            return 0
        most = self.random.choice((1, 3, 10, 40))
        mode = self.random.choice(list(AcquireMode))
        fetched = self.fetch(offset, most)
        fetcher = Fetcher(member, most, self.random.choice((1, 5, 500)), mode)
        total = 0
        aborted = [span for span in fetched if span in self.aborted]
        acquired = self.partition.acquire(fetcher, offset, fetched, aborted, LIMITS, self.now_ms)
        for first, last, count in acquired:
            assert 1 <= count <= LIMITS.delivery_count
            for at in range(first, last + 1):
                assert at not in self.held, "one member at a time"
                assert not self.accepted[at], "accepted for good"
                assert not any(span.first <= at <= span.last for span in aborted), "aborted"
                self.held[at] = member
                total += 1
                if count == LIMITS.delivery_count:
                    self.archived.add(at)  # its last delivery
        if mode == AcquireMode.RECORD_LIMIT:
            assert total <= most
        return total

    def acknowledge(self, member: str, types: tuple[int, ...]) -> None:
        mine = sorted(at for at, holder in self.held.items() if holder == member and at >= self.start)
        if not mine:
            return
        first = self.random.choice(mine)
        last = first
        while last + 1 in self.held and self.held[last + 1] == member and self.random.random() < 0.9:
            last += 1
        each = [self.random.choice(types) for _ in range(last - first + 1)]
        wanted = Acknowledgement(first, last, each if self.random.random() < 0.5 else each[:1])
        result = self.partition.acknowledge(member, [wanted], LIMITS, self.now_ms)
        assert not isinstance(result, Refusal), result
        if result is not None:
            self.writes.append(result)

    def keep(self, update: Update) -> None:
        """Write an update at the share coordinator."""
        self.kept_start = max(self.kept_start, update.start_offset)
        self.kept = combine(self.kept, update.batches, self.kept_start)
        for kept in update.batches:
            for at in range(kept.first_offset, kept.last_offset + 1):
                if kept.delivery_state == 2:
                    self.accepted[at] = 1
                elif kept.delivery_state == 4:
                    self.archived.add(at)

    def end_write(self, fail: float) -> None:
        if self.writes:
            update = self.writes.pop(0)
            is_written = self.random.random() >= fail
            if is_written:
                self.keep(update)
            self.partition.written(update, LIMITS, self.now_ms, is_written=is_written)

    def expire(self) -> None:
        update = self.partition.expire(LIMITS, self.now_ms)
        if update is not None:
            self.writes.append(update)

    def leave(self, member: str) -> None:
        update = self.partition.release(member, LIMITS)
        if update is not None:
            self.writes.append(update)

    def retain(self) -> None:
        """Remove the first record batch of the log."""
        if len(self.log) > 1:
            self.log.pop(0)
            self.log_start = self.log[0].first

    def step(self) -> None:
        member = self.random.choice("mnop")
        action = self.random.random()
        if action < 0.2:
            self.append()
        elif action < 0.45:
            self.acquire(member)
        elif action < 0.7:
            self.acknowledge(member, (0, 1, 1, 1, 2, 3, 4))
        elif action < 0.87:
            self.end_write(0.2)
        elif action < 0.92:
            self.now_ms += self.random.choice((10, 100))
            self.expire()
        elif action < 0.95:
            self.leave(member)
        elif action < 0.98:
            self.retain()
        else:
            self.partition = self.new_leader()
        self.check()

    def check(self) -> None:
        """What holds at any time."""
        state = self.partition.state
        now_held = {
            at: run.member_id
            for batch in state.cache.batches
            for run in batch.runs
            if run.phase == phases.ACQUIRED
            for at in range(run.first, run.last + 1)
        }
        for at in set(self.held) - set(now_held):
            del self.held[at]
        for at, member in now_held.items():
            self.held[at] = member
        assert state.complete_count == count_complete(self.partition)
        before = None
        for batch in state.cache.batches:
            assert before is None or before < batch.first
            assert batch.runs[0].first == batch.first
            assert batch.runs[-1].last == batch.last
            for run, after in zip(batch.runs, batch.runs[1:], strict=False):
                assert run.last + 1 == after.first
            for run in batch.runs:
                assert (run.phase in phases.PENDING) == (run.update is not None)
                assert (run.phase in phases.PENDING or run.phase == phases.ACQUIRED) == bool(run.member_id)
            before = batch.last
        if state.gap is not None:
            assert state.start_offset <= state.gap < state.end_offset

    def drain(self) -> None:
        """Let members accept what is left, until nothing is."""
        idle = 0
        while idle < 3:
            while self.writes:
                self.end_write(0)
            before = self.partition.next_fetch_offset()
            got = self.acquire("m")
            self.check()
            for member in "mnop":
                while any(holder == member for at, holder in self.held.items() if at >= self.start):
                    self.acknowledge(member, (1,))
                    self.check()
            has_moved = got or self.writes or self.partition.next_fetch_offset() != before
            idle = 0 if has_moved else idle + 1


@pytest.mark.parametrize("seed", range(60))
def test_every_record_is_accepted_by_one_member_or_archived(seed: int) -> None:
    history = History(seed)
    for _ in range(150):
        history.step()
    history.drain()
    state = history.partition.state
    assert not state.cache, "nothing is stuck"
    assert state.in_flight_count == 0
    left = {at for span in history.log for at in range(span.first, span.last + 1) if span not in history.aborted}
    skipped = sorted(at for at in left if not history.accepted[at] and at not in history.archived)
    assert skipped == []
    assert state.start_offset >= max(left, default=-1) + 1
